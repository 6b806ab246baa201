package engine

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// decision is what one replay decided for one sequence.
type decision struct {
	seq    *Sequence
	kept   int
	next   int32
	drafts []int32
	stats  []int32 // of the rows of the span
}

func (d *decision) stat(row, col int) int32 { return d.stats[row*kernels.StatCols+col] }

// decided does with a decision what judge, advance and report do in a step.
func (l *loop) decided(d *decision, active int) error {
	e, s := l.e, d.seq
	for row := range l.kind.k + 1 {
		if n := d.stat(row, kernels.StatNaNs); n > 0 {
			e.core.Cancel(s.id)
			e.end(s, FinishError, fmt.Errorf("request %s: %d logits at position %d are not numbers", s.req.ID, n, s.length+row))
			return nil
		}
	}
	ids := append(slices.Clone(d.drafts[:d.kept-1]), d.next)
	emit, finish := s.cut(ids, e.cfg.MaxTokens)
	rec := l.record(d, active, emit)
	s.tokens = append(s.tokens, emit...)
	s.sampler.Push(emit...)
	s.length += d.kept
	op, err := e.core.Advance(sched.Result{ID: s.id, Kept: d.kept, Tokens: emit, Done: finish != ""})
	if err != nil {
		return err
	}
	l.setPages(op)
	if e.recorder != nil {
		if err := e.recorder.Record(rec); err != nil {
			return fmt.Errorf("record of request %s: %w", s.req.ID, err)
		}
	}
	if e.listener.Emitted != nil {
		e.listener.Emitted(s, rec)
	}
	s.seqStep++
	if finish != "" {
		e.end(s, finish, nil)
	}
	return nil
}

// record is the record of a decision. Times are the device's, and the work is that of
// the replay, idle rows and all.
func (l *loop) record(d *decision, active int, emit []int32) *Record {
	s, k, t := d.seq, l.kind.k, &l.entries
	rec := &Record{
		Request: s.req.ID, Sequence: s.id, Step: l.e.step, SeqStep: s.seqStep, Phase: Decode,
		Batch: int32(active), BatchRows: int32(active * (k + 1)),
		Position: int32(s.length), Rows: int32(k + 1), Cached: s.cached, Preemptions: s.preemptions,
		Drafter: "none", Rule: s.rule.Name(), KPlanned: int32(k), KExecuted: int32(k), TreeNodes: int32(k),
		Accepted: Accepted(d.kept - 1), NextID: d.next, NextKind: NextCorrection,
		EmittedIDs: emit, RealAccepted: Accepted(d.kept - 1), RealNextID: d.next, ForcedAccepted: Accepted(d.kept - 1),
		VerifyNs: int64(t[2].At - t[1].At), TotalNs: int64(t[3].At - t[0].At),
		DraftWork: t[1].Work.Sub(t[0].Work).Add(t[3].Work.Sub(t[2].Work)), TargetWork: t[2].Work.Sub(t[1].Work),
	}
	if k > 0 {
		rec.ProposedIDs = slices.Clone(d.drafts)
	}
	switch {
	case k == 0:
		rec.NextKind = NextSampled
	case d.kept == k+1:
		rec.NextKind = NextBonus
	}
	if s.drafter != nil {
		rec.Drafter, rec.DraftNs = s.drafter.Drafter.Name(), int64(t[1].At-t[0].At)+int64(t[3].At-t[2].At)
	}
	for r := range k + 1 {
		top1, top2 := math.Float32frombits(uint32(d.stat(r, kernels.StatLogit1))), math.Float32frombits(uint32(d.stat(r, kernels.StatLogit2)))
		rec.TargetIDs = append(rec.TargetIDs, d.stat(r, kernels.StatTop1))
		rec.Gaps = append(rec.Gaps, top1-top2)
		rec.Hashes = append(rec.Hashes, uint64(uint32(d.stat(r, kernels.StatHashLo)))|uint64(uint32(d.stat(r, kernels.StatHashHi)))<<32)
	}
	return rec
}
