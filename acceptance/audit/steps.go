package audit

import "exacta.dev/exacta/engine"

// Identities of engine steps.
const (
	checkTotals  = "batch, rows and prefill tokens of a step are its records' sums"
	checkGapless = "steps are numbered without a gap"
)

// stepper groups the records of an engine step, which come together.
type stepper struct {
	recs []*engine.Record
	done func(recs []*engine.Record)
}

// add takes a record. A run of several engines can have steps of the same number
// in a row; their durations tell them apart.
func (s *stepper) add(r *engine.Record) {
	if len(s.recs) > 0 && (r.Step != s.recs[0].Step || r.TotalNs != s.recs[0].TotalNs) {
		s.flush()
	}
	s.recs = append(s.recs, r)
}

// flush hands over what is left.
func (s *stepper) flush() {
	if len(s.recs) > 0 {
		s.done(s.recs)
	}
	s.recs = s.recs[:0]
}

// step checks the totals of an engine step. A sequence that failed or was cancelled in
// it has no record: then the totals may be larger.
func (a *countsAudit) step(recs []*engine.Record) {
	k := a.b.check(checkTotals)
	var rows, fresh int32
	same := true
	for _, r := range recs {
		rows += r.Rows
		if r.Phase == engine.Prefill {
			fresh += r.Rows
		}
		same = same && r.Batch == recs[0].Batch && r.BatchRows == recs[0].BatchRows && r.PrefillTokens == recs[0].PrefillTokens && r.IdleRows == recs[0].IdleRows
	}
	r := recs[0]
	ok := int(r.Batch) == len(recs) && r.BatchRows == rows && r.PrefillTokens == fresh && r.IdleRows >= 0
	if a.failures() {
		ok = int(r.Batch) >= len(recs) && r.BatchRows >= rows && r.PrefillTokens >= fresh
	}
	if !k.holds(ok && same) {
		k.blame(r, "the step says %d sequences, %d rows, %d of them prefill; its records are %d, %d, %d", r.Batch, r.BatchRows, r.PrefillTokens, len(recs), rows, fresh)
	}
	if k := a.b.check(checkGapless); !a.failures() && !k.holds(r.Step == a.lastStep+1 || r.Step == 0) {
		k.blame(r, "step %d follows step %d", r.Step, a.lastStep)
	}
	a.lastStep = r.Step
	a.together(recs)
}

// failures reports whether any request of the case was cancelled or ended in an error.
func (a *countsAudit) failures() bool {
	if a.ended == 0 {
		a.ended = 1
		for _, r := range a.c.Requests {
			if r.Finish == engine.FinishError || r.Finish == engine.FinishCancel {
				a.ended = 2
			}
		}
	}
	return a.ended == 2
}
