package main

import (
	"fmt"
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// generated is the JSON result.
type generated struct {
	Text         string           `json:"text"`
	Prompt       string           `json:"prompt,omitempty"` // what a chat template made
	PromptTokens int              `json:"prompt_tokens"`
	Tokens       []generatedToken `json:"tokens"`
	Finish       engine.Finish    `json:"finish"`
	Drafter      string           `json:"drafter"`
	K            int              `json:"k"`
	Rule         string           `json:"rule"`
	Proposed     int              `json:"proposed"`
	Accepted     int              `json:"accepted"`
	Steps        int              `json:"steps"`
	AcceptLength float64          `json:"accept_length"`
	TokS         float64          `json:"tok_s"`
	// Lossy says that the rule accepts what the model would not have said.
	Lossy      bool   `json:"lossy"`
	Simulated  bool   `json:"simulated"`
	Simulation string `json:"simulation,omitempty"` // what was asked for
	// RealAcceptLength is what the rule itself decided in simulated steps.
	RealAcceptLength *float64 `json:"real_accept_length,omitempty"`

	real float64 // sum of the rule's own accept lengths
}

type generatedToken struct {
	ID   int32  `json:"id"`
	Kind string `json:"kind"` // accepted, correction, bonus or sampled
	// Simulated says that the step was.
	Simulated bool `json:"simulated,omitempty"`
}

func (g *generated) add(r *engine.Record) {
	g.Proposed += int(r.KExecuted)
	g.Accepted += int(r.Accepted)
	if r.Phase == engine.Decode {
		g.Steps++
		g.AcceptLength += float64(r.Accepted.Length())
		g.real += float64(r.RealAccepted.Length())
	}
	g.Rule, g.Lossy = r.Rule, r.Lossy
	g.Simulated, g.Simulation = g.Simulated || r.Simulated, r.Simulation
	for i, id := range r.EmittedIDs {
		g.Tokens = append(g.Tokens, generatedToken{id, kindOf(r, i), r.Simulated})
	}
}

// kindOf says how emitted token i of a record came.
func kindOf(r *engine.Record, i int) string {
	if i < int(r.Accepted) {
		return "accepted"
	}
	return string(r.NextKind)
}

func (g *generated) finish(seq *engine.Sequence, t *tokenizer.Tokenizer, took time.Duration) {
	g.Finish = seq.Finish()
	g.Text = t.Decode(seq.Output(), true)
	g.TokS = float64(len(g.Tokens)) / took.Seconds()
	if g.Steps > 0 {
		g.AcceptLength /= float64(g.Steps)
		g.real /= float64(g.Steps)
	}
	if g.Simulated {
		g.RealAcceptLength = &g.real
	}
}

// usage is the line below the text.
func (g *generated) usage() string {
	line := fmt.Sprintf("%d tokens, %.0f tok/s, accept length %.2f (%d of %d drafts accepted), %s",
		len(g.Tokens), g.TokS, g.AcceptLength, g.Accepted, g.Proposed, g.Finish)
	if g.Lossy {
		line += fmt.Sprintf("; LOSSY rule %s: the text is not the model's own", g.Rule)
	}
	if g.Simulated {
		line += fmt.Sprintf("; simulated %s, real accept length %.2f: the text means nothing", g.Simulation, g.real)
	}
	return line
}
