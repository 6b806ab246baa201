package engine

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// work is the scratch of one step, reused.
type work struct {
	items    []item
	results  []sched.Result
	asks     []Ask
	argmax   []int32
	prefill  int
	stepSpan Step
	lengths  []LengthAsk
	outcome  StepOutcome
	// counted is the backend's work up to the last look; see Record.
	counted, draftWork, targetWork kernels.Counters
}

// item is one span of the step with its outcome.
type item struct {
	plan    sched.Item
	at      int // index in the plan
	seq     *Sequence
	draft   Draft
	tokens  []int32 // the span's tokens
	path    []int32 // the rows that are kept, in order of position; nil: the first ones
	rowOff  int
	logit   int     // index of its first wanted logits row
	logits  int     // number of wanted logits rows
	before  int     // logits rows before those, one for each other row of a prompt that is observed
	choice  []int32 // the token that the device has chosen, where it has
	verdict Verdict
	kept    int
	next    int32
	emit    []int32
	finish  Finish
	err     error
	planned int
}

// logitFrom is the first row of the span whose logits are wanted: a decode span
// wants them from its first row on, a prompt for its last row.
func (it *item) logitFrom() int {
	if it.decodes() {
		return 0
	}
	return len(it.tokens) - it.logits
}

// decodes says whether the item is a verification.
func (it *item) decodes() bool { return it.plan.Phase == sched.Decode }

// asks says whether drafter d is asked for the item's drafts.
func (it *item) asks(d *drafterEntry) bool {
	return it.seq.drafter == d && it.decodes() && it.plan.K > 0
}

// Step runs one step and reports whether anything was left to do. An error is
// the backend's or the recorder's and ends the engine; errors of single
// sequences end those (Sequence.Err).
func (e *Engine) Step() (bool, error) {
	if e.failed != nil {
		return false, e.failed
	}
	more, err := e.stepOrTurn()
	if err != nil {
		e.failed = e.fails(fmt.Errorf("engine step %d: %w", e.step, err))
		return false, e.failed
	}
	return more, nil
}

// stepOrTurn takes a step, or a turn of the loop that decodes.
func (e *Engine) stepOrTurn() (bool, error) {
	l, err := e.looping()
	if err != nil {
		return false, err
	}
	if e.loop != nil && e.loop != l {
		if len(e.seqs) == 0 {
			return e.loop.turn()
		}
		if err := e.loop.leave(); err != nil {
			return false, err
		}
		return true, nil
	}
	if l == nil {
		return e.runStep()
	}
	e.loop = l
	return l.turn()
}

// Run steps until nothing is left, or stop (if not nil) returns true between
// two steps.
func (e *Engine) Run(stop func() bool) error {
	for stop == nil || !stop() {
		if more, err := e.Step(); err != nil || !more {
			return err
		}
	}
	return nil
}

func (e *Engine) runStep() (bool, error) {
	if err := e.chooseLengths(); err != nil {
		return false, err
	}
	plan := e.core.Plan()
	if len(plan.Items) == 0 {
		return false, e.core.Commit(nil)
	}
	begin, line := e.cfg.Now(), e.cfg.Timeline
	line.host("plan")
	if err := e.prepare(&plan); err != nil {
		return false, err
	}
	e.w.counted = e.be.Work()
	line.host("draft")
	e.propose()
	e.w.draftWork = e.worked()
	line.host("verify")
	verifyFrom := e.cfg.Now()
	batch := e.layout()
	out, err := e.pass(batch)
	if err != nil {
		return false, err
	}
	if err := e.readStats(batch); err != nil {
		return false, err
	}
	for i := range e.w.items {
		e.judge(&e.w.items[i], out.Logits)
	}
	if err := e.observe(out.Logits); err != nil {
		return false, err
	}
	verifyNs := e.cfg.Now() - verifyFrom
	line.host("commit")
	e.w.targetWork = e.worked()
	if err := e.outcomes(batch, begin, verifyNs); err != nil {
		return false, err
	}
	if err := e.follow(batch); err != nil {
		return false, err
	}
	e.commit(batch)
	kept, err := e.compact(batch, out)
	if err != nil {
		return false, err
	}
	if err := e.inform(batch, kept); err != nil {
		return false, err
	}
	e.w.draftWork = e.w.draftWork.Add(e.worked())
	line.host("report")
	if err := e.advance(plan.After); err != nil {
		return false, err
	}
	total := e.cfg.Now() - begin
	e.observeLengths(total)
	if err := e.report(batch, verifyNs, total); err != nil {
		return false, err
	}
	line.host("")
	if line != nil {
		where := decodeLane
		if e.w.prefill > 0 {
			where = promptLane
		}
		err = line.device(where, fmt.Sprintf("step: %d sequences, %d rows", batch.Spans, batch.Rows), e.step)
	}
	e.step++
	return true, err
}

// prepare records the plan's cache operations and builds the step's items,
// sequences of device drafters first.
func (e *Engine) prepare(plan *sched.Plan) error {
	for _, id := range plan.Preempted {
		seq := e.seqs[id]
		seq.preemptions++
		seq.length, seq.cached = 0, 0
		seq.slot, seq.owed = -1, 0
		if seq.drafter != nil {
			seq.drafter.Release(seq)
		}
	}
	e.w.items = e.w.items[:0]
	e.w.prefill = 0
	for i, it := range plan.Items {
		seq := e.seqs[it.ID]
		seq.slot = it.Slot
		seq.length = it.Start
		e.w.items = append(e.w.items, item{plan: it, at: i, seq: seq, planned: it.K})
		if it.Phase == sched.Prefill {
			e.w.prefill += it.Rows
		}
	}
	for _, op := range plan.Before {
		switch op.Kind {
		case sched.Reset:
			e.q.Reset(e.caches, op.Slot)
		case sched.SetPages:
			e.q.SetPages(e.caches, op.Slot, op.First, op.Pages)
		case sched.Restore:
			if err := e.restore(op); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(e.w.items, func(a, b item) int { return a.place() - b.place() })
	return nil
}

// place orders the items of a batch: by drafter, for each those last of which it
// hears later, and those without a drafter behind them all.
func (it *item) place() int {
	d := it.seq.drafter
	switch {
	case d == nil:
		return 1 << 30
	case d.device != nil && it.putOff():
		return 2*d.order + 1
	}
	return 2 * d.order
}

// restore brings a slot to a prefix-cache hit of op.Length tokens.
func (e *Engine) restore(op sched.Op) error {
	e.q.Restore(e.caches, op.Slot, op.Snapshot, op.Length)
	for i := range e.w.items {
		seq := e.w.items[i].seq
		if seq.slot != op.Slot {
			continue
		}
		seq.cached = int32(op.Length)
		if d := seq.drafter; d != nil && d.device != nil {
			return d.device.Restore(e.q, seq, op.Snapshot, seq.tokens[op.Length])
		}
	}
	return nil
}

// propose asks each drafter for the drafts of its decoding sequences.
func (e *Engine) propose() {
	e.w.asks = e.w.asks[:0]
	for i := range e.w.items {
		it := &e.w.items[i]
		e.w.asks = append(e.w.asks, Ask{Seq: it.seq, K: it.plan.K})
	}
	for _, d := range e.drafters {
		d.asks, d.ns = d.asks[:0], 0
		for i := range e.w.items {
			if it := &e.w.items[i]; it.asks(d) {
				d.asks = append(d.asks, &e.w.asks[i])
			}
		}
		due := e.due(d)
		if len(d.asks)+len(due) == 0 {
			continue
		}
		from := e.cfg.Now()
		err := e.settle(d, due)
		if err == nil && len(d.asks) > 0 {
			err = d.Propose(e.q, d.asks)
		}
		d.ns = e.cfg.Now() - from
		for i := range e.w.items {
			if it := &e.w.items[i]; err != nil && (it.asks(d) || slices.Contains(due, it.seq)) {
				it.err = fmt.Errorf("request %s: drafter %s: %w", it.seq.req.ID, d.name, err)
			}
		}
	}
	for i := range e.w.items {
		it := &e.w.items[i]
		it.draft = e.checked(e.w.asks[i].Draft, it.plan.K)
		if it.decodes() {
			it.draft = e.cfg.Interposer.Draft(it.seq, it.plan.K, it.draft)
			it.draft.settle()
		}
	}
}

// checked cuts a draft to at most k tokens, and before the first id that is not
// a token or parent that is none: a drafter that errs costs speed, not
// correctness.
func (e *Engine) checked(d Draft, k int) Draft {
	d.first(min(len(d.Tokens), k))
	for i, id := range d.Tokens {
		if id < 0 || int(id) >= e.cfg.Vocab {
			d.first(i)
			break
		}
	}
	d.settle()
	if d.Probs != nil {
		d.Probs = d.Probs[:min(len(d.Probs), len(d.Tokens))]
	}
	return d
}

// layout fills the tables and records their upload.
func (e *Engine) layout() kernels.Batch {
	e.t.reset()
	for i := range e.w.items {
		it := &e.w.items[i]
		start := it.plan.Start
		it.logit = len(e.t.logit)
		if it.decodes() {
			it.tokens = append(make([]int32, 0, 1+len(it.draft.Tokens)), it.seq.tokens[start])
			it.tokens = append(it.tokens, it.draft.Tokens...)
			start, it.tokens = e.cfg.Interposer.Span(it.seq, start, it.tokens)
			it.logits = e.cfg.Interposer.LogitRows(it.seq, len(it.tokens))
		} else {
			it.tokens = it.seq.tokens[start : start+it.plan.Rows]
			it.logits = 0
			if it.plan.Last {
				it.logits = 1
			}
		}
		it.before = 0
		if it.seq.req.ObservePrompt != nil && !it.decodes() {
			it.before = len(it.tokens) - it.logits
		}
		it.rowOff = e.t.add(it.seq.slot, start, it.tokens, it.draft.Parent, it.logitFrom()-it.before, it.before+it.logits)
		it.logit += it.before
	}
	return e.t.write(e.q)
}

// readStats brings the statistics of the logits rows to the host.
func (e *Engine) readStats(b kernels.Batch) error {
	n := b.LogitRows
	if n == 0 {
		return e.q.Err()
	}
	return e.q.Read(int32Bytes(e.statsHost[:n*kernels.StatCols]), e.stats.Top(n)).Wait()
}

// stat returns the statistics of a wanted row.
func (e *Engine) stat(row int) rowStats {
	return e.statsHost[row*kernels.StatCols:][:kernels.StatCols]
}

// worked returns what the backend has executed since the last call.
func (e *Engine) worked() kernels.Counters {
	now := e.be.Work()
	done := now.Sub(e.w.counted)
	e.w.counted = now
	return done
}
