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

	Steps    int64
	TotalNs  int64
	DraftNs  int64
	VerifyNs int64
	Decode   StepCosts
}

// StepCosts sums what decoding steps cost and gave: the engine steps without
// prefill.
type StepCosts struct {
	Steps         int64               // engine steps
	Verifications int64               // in them; one for each sequence and step
	Rows          int64               // computed for them: executed drafts + 1 each
	Emitted       Sum[engine.Emitted] // tokens emitted in them
	DraftNs       int64
	VerifyNs      int64 // target's pass and verdicts
	TotalNs       int64
}

// TokS is emitted tokens per second.
func (c *StepCosts) TokS() float64 { return 1e9 * c.Emitted.Per(c.TotalNs) }

// Costs returns what the decoding steps cost.
func (s *Stats) Costs() StepCosts { return s.times.Decode }

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
			t.Decode.Steps++
			t.Decode.TotalNs += r.TotalNs
			t.Decode.VerifyNs += r.VerifyNs
		}
	}
	if !slices.Contains(t.drafters, r.Drafter) {
		t.drafters = append(t.drafters, r.Drafter)
		t.DraftNs += r.DraftNs
		if t.pure {
			t.Decode.DraftNs += r.DraftNs
		}
	}
	if t.pure {
		t.Decode.Verifications++
		t.Decode.Rows += int64(max(r.KExecuted, r.TreeNodes)) + 1
		t.Decode.Emitted.Add(r.Emitted())
	}
}
