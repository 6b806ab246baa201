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
	var d *drafterEntry
	for _, s := range e.seqs {
		if !e.loopable(s) || s.k() > 0 && d != nil && d != s.drafter {
			return nil, nil
		}
		if s.k() > 0 {
			d = s.drafter
		}
	}
	if l := e.loops[d]; l != nil {
		return l, nil
	}
	if d != nil && e.cfg.MaxSequences*(e.cfg.MaxDraft+1) > min(e.t.rows, e.t.logitRows) {
		return nil, nil // a step is to have fewer rows
	}
	if e.cramped[d] {
		return nil, nil
	}
	l, err := e.newLoop(d)
	switch {
	case errors.Is(err, kernels.ErrOutOfMemory): // steps need nothing more
		e.cramped[d] = true
		return nil, nil
	case err != nil:
		return nil, err
	}
	e.loops[d] = l
	return l, nil
}

// turn is a step of the engine while a loop decodes. It reports whether anything is
// left to do.
func (l *loop) turn() (bool, error) {
	e := l.e
	if l.onHost() {
		if err := l.takeAll(0); err != nil {
			return false, err
		}
	}
	e.cfg.Timeline.host("admit")
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
	e.cfg.Timeline.host("launch prompts")
	if err := l.startPrompts(); err != nil {
		return false, err
	}
	e.cfg.Timeline.host("launch a replay")
	if err := l.replay(); err != nil {
		return false, err
	}
	e.cfg.Timeline.host("take")
	// One replay stays out while there are sequences to decode.
	if err := l.takeAll(1); err != nil {
		return false, err
	}
	if !l.busy() {
		if err := l.takeAll(0); err != nil {
			return false, err
		}
		l.end = 0
	}
	e.cfg.Timeline.host("")
	return len(e.seqs) > 0 || len(l.flights) > 0, nil
}

// takeAll takes what is out, the oldest first, except the last ones.
func (l *loop) takeAll(except int) error {
	for len(l.flights) > except {
		f := l.flights[0]
		l.flights = append(l.flights[:0], l.flights[1:]...)
		if f.prompts != nil {
			if err := l.takePrompts(f.prompts); err != nil {
				return err
			}
			continue
		}
		if err := l.take(&f); err != nil {
			return err
		}
		l.free = append(l.free, f)
	}
	return nil
}

// busy reports whether a sequence is in the loop.
func (l *loop) busy() bool {
	return slices.ContainsFunc(l.spans, func(s *Sequence) bool { return s.finish == "" })
}

// leave takes what is out, and gives the sequences back to Step.
func (l *loop) leave() error {
	if err := l.takeAll(0); err != nil {
		return err
	}
	for i, s := range l.spans {
		l.e.core.Resume(s.id)
		s.looped = false
		l.write(l.t.slots, i, -1)
	}
	l.spans, l.end = l.spans[:0], 0
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
			for _, t := range []kernels.Buf{l.t.slots, l.t.left, l.t.stops, l.t.out, l.t.how} {
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
	if l.device() != nil && len(ready) > 0 {
		if err := e.settle(l.drafter, ready); err != nil {
			return fmt.Errorf("drafter %s: %w", l.drafter.name, err)
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
		l.write(l.t.left, i, int32(s.room(e.cfg.MaxTokens)))
		l.write(l.t.stops, i, stops...)
		how := s.drawing()
		l.write(l.t.how, i, how[:]...)
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
		need := min(most, s.length+3*(l.widest()+1)+1)
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
