package engine

import (
	"errors"
	"time"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
)

// promptStep is a step of prompts that runs between replays: what it decides follows
// from the tables, and the host learns of it from the ring.
type promptStep struct {
	plan  sched.Plan
	batch kernels.Batch
}

// startPrompts records a step of prompts, if there are any to read.
func (l *loop) startPrompts() error {
	e, q := l.e, l.queue
	if !e.core.Unplanned() {
		return nil
	}
	p := &promptStep{plan: e.core.Plan()}
	if len(p.plan.Items) == 0 {
		return e.core.Commit(nil)
	}
	if err := e.prepare(&p.plan); err != nil {
		return err
	}
	e.w.asks = append(e.w.asks[:0], make([]Ask, len(e.w.items))...)
	p.batch = e.layout()
	b := p.batch
	q.Post(l.ring)
	out := e.forward(q, &b)
	choice := l.chosen(&b, out)
	if b.LogitRows > 0 {
		q.Post(l.ring, e.stats.Top(b.LogitRows), choice)
	} else {
		q.Post(l.ring)
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
	kept, next := e.t.decide(q)
	for i := range e.w.items {
		if it := &e.w.items[i]; it.logits > 0 {
			q.Copy(next.Slice(i, i+1), choice.Slice(it.logit, it.logit+1))
		}
	}
	d := l.device()
	if d != nil {
		d.Follow(q, &b)
	}
	q.Commit(e.caches, &b, kept, kernels.Buf{})
	if d != nil {
		d.Level(l.levelled(q, b, out, kept, next))
	}
	q.Post(l.ring)
	l.flights = append(l.flights, flight{prompts: p})
	return e.cfg.Timeline.device(promptLane, "prompts", e.step)
}

// chosen records the target's choice at the wanted rows of a step of prompts, and
// returns it.
func (l *loop) chosen(b *kernels.Batch, out model.Output) kernels.Buf {
	e, n := l.e, b.LogitRows
	if n == 0 {
		return kernels.Buf{}
	}
	var how []int32
	drawn := false
	for i := range e.w.items {
		row := e.w.items[i].seq.drawing()
		how = append(how, row[:]...)
		drawn = drawn || e.w.items[i].seq.drawn()
	}
	if !drawn {
		return e.stats.Top(n).Columns(kernels.StatTop1, kernels.StatTop1+1)
	}
	l.queue.Write(l.t.promptHow.Top(b.Spans), int32Bytes(how))
	choice := l.t.choice.Top(n)
	l.queue.Draw(choice, e.stats.Top(n), out.Logits, l.t.promptHow.Top(b.Spans), b, e.cfg.Vocab)
	return choice
}

// takePrompts does what follows from the results of a step of prompts.
func (l *loop) takePrompts(p *promptStep) error {
	e, t := l.e, &l.entries
	if err := l.await(3); err != nil {
		return err
	}
	stats := copy(e.statsHost[:p.batch.LogitRows*kernels.StatCols], t[1].Data)
	for i := range e.w.items {
		it := &e.w.items[i]
		if it.logits > 0 {
			it.choice = t[1].Data[stats+it.logit:][:1]
		}
		e.judge(it, kernels.Buf{})
	}
	hostNs := time.Duration(0)
	if d := l.drafter; d != nil {
		d.ns = 0
		if l.onHost() {
			if err := e.informDrafter(d, p.batch, model.Output{}); err != nil {
				return err
			}
			hostNs = time.Duration(d.ns)
		} else {
			d.ns = int64(t[2].At - t[1].At)
		}
	}
	if err := e.advance(p.plan.After); err != nil {
		return err
	}
	e.w.targetWork, e.w.draftWork = t[1].Work.Sub(t[0].Work), t[2].Work.Sub(t[1].Work)
	l.end = t[2].At
	if err := e.report(p.batch, int64(t[1].At-t[0].At), int64(t[2].At-t[0].At+hostNs)); err != nil {
		return err
	}
	e.step++
	return nil
}
