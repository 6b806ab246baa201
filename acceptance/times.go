package acceptance

import (
	"slices"

	"exacta.dev/exacta/engine"
)

// stepTimes sums the durations of engine steps. The records of a step, one for
// each sequence, all carry the step's durations, and DraftNs that of their
// drafter; each counts once.
type stepTimes struct {
	step, totalNs int64 // of the current step
	started, pure bool  // pure: no prefill in the current step
	drafters      []string

	Steps       int64
	TotalNs     int64
	DraftNs     int64
	VerifyNs    int64
	DecodeSteps int64 // steps without prefill
	DecodeNs    int64
	DecodeToks  Sum[engine.Emitted] // tokens emitted in them
}

func (t *stepTimes) add(r *engine.Record) {
	// A run of several engines has steps of the same number in a row when
	// an engine ran a single step; their durations tell them apart.
	if !t.started || r.Step != t.step || r.TotalNs != t.totalNs {
		t.started, t.step, t.totalNs = true, r.Step, r.TotalNs
		t.pure = r.PrefillTokens == 0
		t.drafters = t.drafters[:0]
		t.Steps++
		t.TotalNs += r.TotalNs
		t.VerifyNs += r.VerifyNs
		if t.pure {
			t.DecodeSteps++
			t.DecodeNs += r.TotalNs
		}
	}
	if !slices.Contains(t.drafters, r.Drafter) {
		t.drafters = append(t.drafters, r.Drafter)
		t.DraftNs += r.DraftNs
	}
	if t.pure {
		t.DecodeToks.Add(r.Emitted())
	}
}
