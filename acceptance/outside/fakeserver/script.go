package fakeserver

import (
	"encoding/binary"

	"exacta.dev/exacta/engine"
)

// Step is one verification: the drafts that were offered, how many of them the
// rule accepted, and the tokens that reached the client.
type Step struct {
	Offered  []int32
	Accepted int
	Emitted  []int32
}

// Trace is a decoding of one prompt.
type Trace struct {
	First  int32 // the token that the prompt's last row gave
	Steps  []Step
	Finish string // stop or length
}

// Output returns the tokens that reached the client.
func (t *Trace) Output() []int32 {
	out := []int32{t.First}
	for _, s := range t.Steps {
		out = append(out, s.Emitted...)
	}
	return out
}

// Script gives the decoding of a prompt, with speculation or plainly; nil where
// it doesn't know the prompt.
type Script interface {
	Trace(prompt []int32, maxTokens int, plain bool) *Trace
	// Text is the text of tokens, as a server sends it.
	Text(ids []int32) string
}

// Recorded is a script from records of the real engine.
type Recorded struct {
	spec, plain map[string]*Trace
	text        func(ids []int32) string
}

// NewRecorded makes an empty script; text gives the text of tokens.
func NewRecorded(text func(ids []int32) string) *Recorded {
	return &Recorded{spec: map[string]*Trace{}, plain: map[string]*Trace{}, text: text}
}

// Recorder takes the records of runs, of which prompts gives the prompts by
// request. stop are the ids that end a text.
func (r *Recorded) Recorder(prompts map[string][]int32, stop []int32, plain bool) engine.Recorder {
	into := r.spec
	if plain {
		into = r.plain
	}
	return engine.RecorderFunc(func(rec *engine.Record) error {
		k := key(prompts[rec.Request])
		t := into[k]
		if len(rec.EmittedIDs) == 0 {
			return nil
		}
		if t == nil {
			t = &Trace{First: rec.EmittedIDs[0]}
			into[k] = t
		} else {
			t.Steps = append(t.Steps, Step{Offered: rec.ProposedIDs, Accepted: int(rec.Accepted), Emitted: rec.EmittedIDs})
		}
		t.Finish = "length"
		for _, s := range stop {
			if rec.EmittedIDs[len(rec.EmittedIDs)-1] == s {
				t.Finish = "stop"
			}
		}
		return nil
	})
}

// Trace implements Script; maxTokens must be that of the recorded runs.
func (r *Recorded) Trace(prompt []int32, _ int, plain bool) *Trace {
	if plain {
		return r.plain[key(prompt)]
	}
	return r.spec[key(prompt)]
}

// Text implements Script.
func (r *Recorded) Text(ids []int32) string { return r.text(ids) }

func key(ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}
