package engine

import (
	"fmt"
	"slices"
	"time"

	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// decision is what one replay decided for one sequence.
type decision struct {
	seq     *Sequence
	planned int
	kept    int
	next    int32
	drafts  []int32 // those that were verified
	stats   []int32 // of the rows of the span
	choice  []int32 // of the target, at the same rows
}

// stat returns the statistics of a row of the span.
func (d *decision) stat(row int) rowStats {
	return d.stats[row*kernels.StatCols:][:kernels.StatCols]
}

// turned is what a replay came to as a whole.
type turned struct {
	batch, rows, idle int
	draftNs, verifyNs int64
	totalNs           int64
	decisions         []decision
}

// take finishes a replay: records, ends, and the scheduler's books.
func (l *loop) take(f *flight) error {
	if err := l.await(4); err != nil {
		return err
	}
	e, t := l.e, l.turned(f)
	if t.batch == 0 {
		return nil // all sequences had ended
	}
	if err := l.inform(t); err != nil {
		return err
	}
	l.observe(t)
	for i := range t.decisions {
		if d := &t.decisions[i]; d.seq.finish == "" {
			if err := l.decided(d, t); err != nil {
				return err
			}
		}
	}
	e.step++
	return nil
}

// turned reads the entries of a replay. Rows of sequences that were cancelled
// meanwhile count, but nothing is decided for them.
func (l *loop) turned(f *flight) *turned {
	t, out := &turned{}, &l.entries
	k := f.shape.drafts
	data, width := out[2].Data, 2+k
	stats := data[f.shape.spans*width:]
	choice := stats[f.shape.rows()*kernels.StatCols:]
	for i, s := range f.spans {
		row := data[i*width:][:width]
		if row[0] == 0 {
			continue
		}
		drafts := row[2:]
		if end := slices.IndexFunc(drafts, func(id int32) bool { return id < 0 }); end >= 0 {
			drafts = drafts[:end]
		}
		t.batch++
		t.rows += 1 + len(drafts)
		if s.finish == "" {
			t.decisions = append(t.decisions, decision{
				seq: s, planned: f.planned[i], kept: int(row[0]), next: row[1], drafts: slices.Clone(drafts),
				stats: stats[i*(k+1)*kernels.StatCols:][:(1+len(drafts))*kernels.StatCols], choice: choice[i*(k+1):][:1+len(drafts)],
			})
		}
	}
	t.idle = f.shape.rows() - t.rows
	began := out[0].At - time.Duration(f.hostNs)
	if l.end > 0 {
		l.Idle += out[0].At - l.end
		began = min(began, l.end)
	}
	l.Busy += out[3].At - out[0].At
	l.end = out[3].At
	t.verifyNs, t.totalNs = int64(out[2].At-out[1].At), int64(l.end-began)
	if l.drafter != nil {
		t.draftNs = f.hostNs
		if !l.onHost() {
			t.draftNs = int64(out[1].At-out[0].At) + int64(out[3].At-out[2].At)
		}
	}
	return t
}

// inform tells a drafter on the host what its sequences committed.
func (l *loop) inform(t *turned) error {
	if !l.onHost() {
		return nil
	}
	s := &l.e.w.stepSpan
	*s = Step{Queue: l.queue, Spans: s.Spans[:0]}
	for i := range t.decisions {
		d := &t.decisions[i]
		if d.seq.drafter == l.drafter {
			tokens := append([]int32{d.seq.tokens[d.seq.length]}, d.drafts...)
			s.Spans = append(s.Spans, Span{Seq: d.seq, Start: d.seq.length, Tokens: tokens, Kept: d.kept, Next: d.next})
		}
	}
	if len(s.Spans) == 0 {
		return nil
	}
	from := l.e.cfg.Now()
	if err := l.drafter.Committed(s); err != nil {
		return l.fail(fmt.Errorf("drafter %s: %w", l.drafter.name, err))
	}
	took := l.e.cfg.Now() - from
	t.draftNs, t.totalNs = t.draftNs+took, t.totalNs+took
	return nil
}

// observe tells a policy of draft lengths what a replay gave and cost.
func (l *loop) observe(t *turned) {
	if l.e.cfg.Lengths == nil {
		return
	}
	o := &l.e.w.outcome
	*o = StepOutcome{Sequences: o.Sequences[:0], DraftNs: t.draftNs, TotalNs: t.totalNs}
	for i := range t.decisions {
		d := &t.decisions[i]
		o.Sequences = append(o.Sequences, LengthOutcome{Seq: d.seq, Drafts: len(d.drafts), Accepted: Accepted(d.kept - 1)})
	}
	l.e.cfg.Lengths.Observe(o)
}

// check says what is wrong with the rows that a decision rests on.
func (d *decision) check() error {
	s := d.seq
	for row := range len(d.drafts) + 1 {
		if n := d.stat(row)[kernels.StatNaNs]; n > 0 {
			return fmt.Errorf("request %s: %d logits at position %d are not numbers", s.req.ID, n, s.length+row)
		}
		if row < d.kept {
			if err := s.unbounded(d.stat(row).logit1()); err != nil {
				return err
			}
		}
	}
	return nil
}

// decided does with a decision what judge, advance and report do in a step.
func (l *loop) decided(d *decision, t *turned) error {
	e, s := l.e, d.seq
	if err := d.check(); err != nil {
		e.core.Cancel(s.id)
		e.end(s, FinishError, err)
		return nil
	}
	ids := append(slices.Clone(d.drafts[:d.kept-1]), d.next)
	emit, finish := s.cut(ids, e.cfg.MaxTokens)
	rec := l.recordOf(d, t, emit)
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

// recordOf is the record of a decision. Times are the device's, from the end of what it
// did before, and the work is that of the replay, idle rows and all.
func (l *loop) recordOf(d *decision, t *turned, emit []int32) *Record {
	s, out, n := d.seq, &l.entries, int32(len(d.drafts))
	rec := &Record{
		Request: s.req.ID, Sequence: s.id, Step: l.e.step, SeqStep: s.seqStep, Phase: Decode,
		Batch: int32(t.batch), BatchRows: int32(t.rows), IdleRows: int32(t.idle),
		Position: int32(s.length), Rows: n + 1, Cached: s.cached, Preemptions: s.preemptions,
		Drafter: "none", Rule: s.rule.Name(), Lossy: Lossy(s.rule), KPlanned: int32(max(0, min(d.planned, s.room(l.e.cfg.MaxTokens)-1))), KExecuted: n, TreeNodes: n,
		Accepted: Accepted(d.kept - 1), NextID: d.next, NextKind: NextCorrection,
		EmittedIDs: emit, RealAccepted: Accepted(d.kept - 1), RealNextID: d.next, ForcedAccepted: Accepted(d.kept - 1),
		VerifyNs: t.verifyNs, TotalNs: t.totalNs,
		DraftWork: out[1].Work.Sub(out[0].Work).Add(out[3].Work.Sub(out[2].Work)), TargetWork: out[2].Work.Sub(out[1].Work),
	}
	switch {
	case n == 0:
		rec.NextKind = NextSampled
	case d.kept == len(d.drafts)+1:
		rec.NextKind = NextBonus
	}
	if n > 0 {
		rec.ProposedIDs = d.drafts
	}
	rec.TargetIDs = slices.Clone(d.choice)
	if s.drawn() { // where a draft was rejected, the host would stop
		rec.TargetIDs = rec.TargetIDs[:d.kept]
	}
	if s.drafter != nil {
		rec.Drafter, rec.DraftNs = s.drafter.Drafter.Name(), t.draftNs
	}
	for r := range int(n) + 1 {
		row := d.stat(r)
		rec.Gaps, rec.Hashes = append(rec.Gaps, row.gap()), append(rec.Hashes, row.hash())
	}
	return rec
}
