package server

import (
	"time"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// job is one sequence on its way: one choice for one prompt.
type job struct {
	req      engine.Request
	asked    *Asked
	detail   bool // events have the view of their step
	accepted chan error
	box      *outbox
	stops    *tokenizer.Stops // nil without stop strings
	arrived  time.Time

	// The worker's.
	seq       *engine.Sequence
	cancelled string // why
	logs      []tokenLog
	counts    counts
	before    time.Time // of the last step that gave tokens
	output    []int32   // set before the end is put

	promptLogs []tokenLog // of the prompt's tokens but the first; written until the first event
}

// found is the stop string that was found, or nil.
func (j *job) found() *found {
	if j.stops == nil {
		return nil
	}
	text, at := j.stops.Found()
	if at < 0 {
		return nil
	}
	return &found{text, at}
}

// counts are what a sequence came to so far.
type counts struct {
	Steps       int // verifications
	Drafted     int // draft tokens that were verified
	Accepted    int
	Real        int // what the rule itself accepted
	Emitted     int
	Cached      int
	Preemptions int
	Simulated   bool
	Simulation  string
	Lossy       bool
	Prefilled   bool // the first token is there

	Scheduled, First, Last, Ended time.Time
}

// add takes a record that ended now.
func (c *counts) add(r *engine.Record, now time.Time) {
	if c.Scheduled.IsZero() {
		c.Scheduled, c.Cached = now.Add(-time.Duration(r.TotalNs)), int(r.Cached)
	}
	c.Preemptions = int(r.Preemptions)
	c.Simulated, c.Lossy = c.Simulated || r.Simulated, c.Lossy || r.Lossy
	if r.Simulation != "" {
		c.Simulation = r.Simulation
	}
	if n := len(r.EmittedIDs); n > 0 {
		if !c.Prefilled {
			c.First = now
		}
		c.Prefilled = true
		c.Last = now
		c.Emitted += n
	}
	if r.Phase == engine.Decode {
		c.Steps++
		c.Drafted += int(r.TreeNodes)
		c.Accepted += int(r.Accepted)
		c.Real += int(r.RealAccepted)
	}
}

// plus is the sum of two choices of one request.
func (c counts) plus(o counts) counts {
	c.Steps += o.Steps
	c.Drafted += o.Drafted
	c.Accepted += o.Accepted
	c.Real += o.Real
	c.Emitted += o.Emitted
	c.Cached += o.Cached
	c.Preemptions += o.Preemptions
	c.Simulated, c.Lossy = c.Simulated || o.Simulated, c.Lossy || o.Lossy
	if o.Simulation != "" {
		c.Simulation = o.Simulation
	}
	return c
}

// stepView is a step of a sequence as a client that asks for it sees it.
type stepView struct {
	Step     int64   `json:"step"`
	Position int32   `json:"position"`
	Batch    int32   `json:"batch"`
	Phase    string  `json:"phase"`
	K        int32   `json:"k"`
	Proposed []int32 `json:"proposed"`
	Parents  []int32 `json:"parents,omitempty"`
	Accepted int     `json:"accepted"`
	Kind     string  `json:"next_kind"`
	Emitted  []int32 `json:"emitted"`
	Ms       float64 `json:"ms"`
	// The tokens as texts, which handlers fill in.
	EmittedText  []string `json:"emitted_text,omitempty"`
	ProposedText []string `json:"proposed_text,omitempty"`
}

func viewOf(r *engine.Record) *stepView {
	return &stepView{
		Step: r.Step, Position: r.Position, Batch: r.Batch, Phase: string(r.Phase), K: r.KExecuted, Proposed: append([]int32{}, r.ProposedIDs...),
		Parents: r.Parents, Accepted: int(r.Accepted), Kind: string(r.NextKind), Emitted: append([]int32{}, r.EmittedIDs...), Ms: float64(r.TotalNs) / 1e6,
	}
}
