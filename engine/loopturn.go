package engine

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// looping returns the loop that decodes all sequences there are, if one can: nil else.
func (e *Engine) looping() (*loop, error) {
	if !e.cfg.Loop || len(e.seqs) == 0 {
		return nil, nil
	}
	var kind loopKind
	first := true
	for _, s := range e.seqs {
		k := e.loopKind(s)
		if !k.ok || !first && k != kind {
			return nil, nil
		}
		kind, first = k, false
	}
	if e.loops[kind] == nil {
		l, err := e.newLoop(kind)
		if err != nil {
			return nil, err
		}
		e.loops[kind] = l
	}
	return e.loops[kind], nil
}

// turn is a step of the engine while a loop decodes. It reports whether anything is
// left to do.
func (l *loop) turn() (bool, error) {
	e := l.e
	if err := l.finishPrompts(); err != nil {
		return false, err
	}
	l.removeEnded()
	if err := l.join(); err != nil {
		return false, err
	}
	switch enough, err := l.extend(); {
	case err != nil:
		return false, err
	case !enough: // a step finds pages, by preemption if it must
		if err := l.leave(); err != nil {
			return false, err
		}
		return e.runStep()
	}
	if err := l.startPrompts(); err != nil {
		return false, err
	}
	if err := l.replay(); err != nil {
		return false, err
	}
	// One replay stays out while there are sequences to decode.
	for len(l.flights) > 1 || len(l.flights) > 0 && !l.busy() {
		if err := l.take(); err != nil {
			return false, err
		}
	}
	return len(e.seqs) > 0 || l.prompts != nil || len(l.flights) > 0, nil
}

// busy reports whether a sequence is in the loop.
func (l *loop) busy() bool {
	return slices.ContainsFunc(l.spans, func(s *Sequence) bool { return s.finish == "" })
}

// leave takes what is out, and gives the sequences back to Step.
func (l *loop) leave() error {
	for len(l.flights) > 0 {
		if err := l.take(); err != nil {
			return err
		}
	}
	if err := l.finishPrompts(); err != nil {
		return err
	}
	for i, s := range l.spans {
		l.e.core.Resume(s.id)
		s.looped = false
		l.write(l.t.slots, i, -1)
	}
	l.spans = l.spans[:0]
	l.e.loop = nil
	return nil
}

// write records the upload of a row of an I32 table.
func (l *loop) write(table kernels.Buf, i int, row ...int32) {
	l.queue.Write(table.Slice(i, i+1), int32Bytes(row))
}

// removeEnded frees the spans of sequences that ended or were cancelled, and moves
// the last ones into their places.
func (l *loop) removeEnded() {
	for i := 0; i < len(l.spans); i++ {
		if l.spans[i].finish == "" {
			continue
		}
		last := len(l.spans) - 1
		if i < last {
			for _, t := range []kernels.Buf{l.t.slots, l.t.left, l.t.stops, l.t.out} {
				l.queue.Copy(t.Slice(i, i+1), t.Slice(last, last+1))
			}
		}
		l.write(l.t.slots, last, -1)
		l.spans[i] = l.spans[last]
		l.spans = l.spans[:last]
		i--
	}
}

// join brings in the sequences whose prompts have been read.
func (l *loop) join() error {
	e := l.e
	var ready []*Sequence
	for _, s := range e.seqs {
		if !s.looped && s.slot >= 0 && len(s.tokens) == s.length+1 && s.length >= len(s.req.Prompt) {
			ready = append(ready, s)
		}
	}
	slices.SortFunc(ready, func(a, b *Sequence) int { return int(a.id - b.id) })
	if d := l.kind.drafter; d != nil && len(ready) > 0 {
		if err := e.settle(d, ready); err != nil {
			return fmt.Errorf("drafter %s: %w", d.name, err)
		}
	}
	for _, s := range ready {
		if err := e.core.Hold(s.id); err != nil {
			return err
		}
		i := len(l.spans)
		l.spans = append(l.spans, s)
		s.looped, s.reach = true, 0
		stops := slices.Repeat([]int32{-1}, loopStops)
		if !s.req.IgnoreStop {
			copy(stops, s.req.Stop)
		}
		l.write(l.t.slots, i, int32(s.slot))
		l.write(l.t.left, i, int32(min(s.req.MaxNew-len(s.Output()), e.cfg.MaxTokens-len(s.tokens))))
		l.write(l.t.stops, i, stops...)
		l.queue.Write(l.t.out.Slice(i, i+1).Columns(1, 2), int32Bytes(s.tokens[s.length:]))
	}
	return nil
}

// ahead is how many tokens a page table is extended beyond what is needed.
const ahead = 2 * kernels.PageTokens

// extend gives each slot the pages that the next replay may touch: the host knows a
// length that is one replay old. It reports whether there were enough.
func (l *loop) extend() (bool, error) {
	e := l.e
	most := e.cfg.slotPages() * kernels.PageTokens
	for _, s := range l.spans {
		need := min(most, s.length+3*(l.kind.k+1)+1)
		if need <= s.reach {
			continue
		}
		reach := min(most, need+ahead)
		op, err := e.core.Extend(s.id, reach)
		if err != nil {
			reach = need
			if op, err = e.core.Extend(s.id, reach); err != nil {
				return false, nil
			}
		}
		l.setPages(op)
		s.reach = reach
	}
	return true, nil
}

func (l *loop) setPages(op sched.Op) {
	if len(op.Pages) > 0 {
		l.queue.SetPages(l.e.caches, op.Slot, op.First, op.Pages)
	}
}

// promptStep is a step of prompts that runs between replays: what it decides follows
// from the tables, and the host learns of it a turn later.
type promptStep struct {
	plan   sched.Plan
	batch  kernels.Batch
	begin  int64
	ticket kernels.Ticket
}

// startPrompts records a step of prompts, if there are any to read.
func (l *loop) startPrompts() error {
	e := l.e
	if l.prompts != nil || !e.core.Unplanned() {
		return nil
	}
	p := &promptStep{plan: e.core.Plan(), begin: e.cfg.Now()}
	if len(p.plan.Items) == 0 {
		return e.core.Commit(nil)
	}
	if err := e.prepare(&p.plan); err != nil {
		return err
	}
	e.w.asks = append(e.w.asks[:0], make([]Ask, len(e.w.items))...)
	p.batch = e.layout()
	b := p.batch
	out := e.forward(l.queue, &b)
	if n := b.LogitRows; n > 0 {
		p.ticket = l.queue.Read(int32Bytes(e.statsHost[:n*kernels.StatCols]), e.stats.Top(n))
	}
	for i := range e.w.items {
		it := &e.w.items[i]
		if it.decodes() {
			return errors.New("a sequence was planned to decode beside the loop")
		}
		next := int32(0)
		if !it.plan.Last {
			next = it.seq.tokens[it.plan.Start+len(it.tokens)]
		}
		e.t.keptHost, e.t.nextHost = append(e.t.keptHost, int32(len(it.tokens))), append(e.t.nextHost, next)
	}
	kept, next := e.t.decide(l.queue)
	for i := range e.w.items {
		if it := &e.w.items[i]; it.logits > 0 {
			l.queue.Copy(next.Slice(i, i+1), e.stats.Slice(it.logit, it.logit+1).Columns(kernels.StatTop1, kernels.StatTop1+1))
		}
	}
	d := l.kind.drafter
	if d != nil {
		d.device.Follow(l.queue, &b)
	}
	l.queue.Commit(e.caches, &b, kept, kernels.Buf{})
	if d != nil {
		step := Step{Queue: l.queue, Batch: b, Kept: kept, Next: next, Hidden: out.Hidden}
		if d.tap >= 0 {
			step.Taps = out.Taps[d.tap]
		}
		d.device.(LoopDrafter).Level(&step)
	}
	l.prompts = p
	return nil
}

// finishPrompts waits for a step of prompts, behind which a replay has been recorded,
// and does what follows from its results.
func (l *loop) finishPrompts() error {
	e, p := l.e, l.prompts
	if p == nil {
		return nil
	}
	l.prompts = nil
	if p.batch.LogitRows > 0 {
		if err := p.ticket.Wait(); err != nil {
			return err
		}
	}
	for i := range e.w.items {
		e.judge(&e.w.items[i], kernels.Buf{})
	}
	if err := e.advance(p.plan.After); err != nil {
		return err
	}
	total := e.cfg.Now() - p.begin
	e.w.draftWork, e.w.targetWork = kernels.Counters{}, kernels.Counters{}
	if err := e.report(p.batch, total, total); err != nil {
		return err
	}
	e.step++
	return nil
}
