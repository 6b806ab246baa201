package engine

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// plan chooses how many drafts each span of a replay gets, has the host draft where it
// does, and uploads what the program reads of that.
func (l *loop) plan(f *flight) error {
	f.planned, f.hostNs = f.planned[:0], 0
	for _, s := range f.spans {
		f.planned = append(f.planned, s.k())
	}
	l.choose(f)
	k, most := 0, make([]int32, len(f.spans))
	for i, s := range f.spans {
		n := f.planned[i]
		if d := l.device(); d != nil && n > 0 {
			n, _ = d.Loops(s.req.Params, n)
		}
		k, most[i] = max(k, n), int32(n)
	}
	if l.onHost() {
		var err error
		if k, err = l.propose(f); err != nil {
			return err
		}
	}
	if !slices.Equal(most, l.most) {
		l.most = append(l.most[:0], most...)
		l.queue.Write(l.t.most.Top(len(most)), int32Bytes(most))
	}
	f.shape = shape{l.bucket(len(f.spans)), k, slices.ContainsFunc(f.spans, (*Sequence).drawn)}
	return nil
}

// drawn says whether a sequence's tokens are drawn on the device.
func (s *Sequence) drawn() bool { return s.twin() == DrawTwin }

// drawing is the row that says how, zeros for the argmax.
func (s *Sequence) drawing() (row [kernels.DrawCols]int32) {
	if s.drawn() {
		row = s.req.Params.Drawing()
	}
	return row
}

// choose lets a policy choose. It knows what the device had decided one replay ago.
func (l *loop) choose(f *flight) {
	e := l.e
	if e.cfg.Lengths == nil {
		return
	}
	e.w.lengths = e.w.lengths[:0]
	for _, s := range f.spans {
		if s.drafter != nil {
			e.w.lengths = append(e.w.lengths, LengthAsk{Seq: s, Most: max(0, min(s.k(), s.room(e.cfg.MaxTokens)-1))})
		}
	}
	if len(e.w.lengths) == 0 {
		return
	}
	e.cfg.Lengths.Choose(e.w.lengths)
	j := 0
	for i, s := range f.spans {
		if s.drafter != nil {
			a := e.w.lengths[j]
			f.planned[i] = min(max(a.K, 0), a.Most)
			j++
		}
	}
}

// propose has the host draft for the spans, and uploads the drafts. It returns the
// most drafts of a span, rounded up so that programs are few.
func (l *loop) propose(f *flight) (int, error) {
	e, d := l.e, l.drafter
	from := e.cfg.Now()
	e.w.asks, d.asks = append(e.w.asks[:0], make([]Ask, len(f.spans))...), d.asks[:0]
	for i, s := range f.spans {
		f.planned[i] = max(0, min(f.planned[i], s.room(e.cfg.MaxTokens)-1))
		e.w.asks[i] = Ask{Seq: s, K: f.planned[i]}
		if f.planned[i] > 0 && s.drafter == d {
			d.asks = append(d.asks, &e.w.asks[i])
		}
	}
	if len(d.asks) > 0 {
		if err := d.Propose(e.q, d.asks); err != nil {
			return 0, l.fail(fmt.Errorf("drafter %s: %w", d.name, err))
		}
	}
	longest := 0
	for i := range e.w.asks {
		a := &e.w.asks[i]
		a.Draft = e.checked(a.Draft, a.K)
		if a.Draft.Parents != nil {
			return 0, errors.New("drafter " + d.name + " proposes a tree; it said that it proposes chains")
		}
		longest = max(longest, len(a.Draft.Tokens))
	}
	k := min(l.widest(), roundedUp(longest))
	if k > 0 {
		rows := slices.Repeat([]int32{-1}, k*len(f.spans))
		for i := range e.w.asks {
			copy(rows[i*k:], e.w.asks[i].Draft.Tokens)
		}
		l.queue.Write(l.t.out.Top(len(f.spans)).Columns(2, 2+k), int32Bytes(rows))
	}
	f.hostNs = e.cfg.Now() - from
	return k, nil
}

// roundedUp is the least power of two that is not below n; 0 of 0.
func roundedUp(n int) int {
	p := min(n, 1)
	for p < n {
		p *= 2
	}
	return p
}

// fail ends the sequences of the loop's drafter.
func (l *loop) fail(err error) error {
	for _, s := range l.spans {
		if s.finish == "" && s.drafter == l.drafter {
			l.e.core.Cancel(s.id)
			l.e.end(s, FinishError, fmt.Errorf("request %s: %w", s.req.ID, err))
		}
	}
	return nil
}

// levelled is what a device drafter is told of a pass.
func (l *loop) levelled(q kernels.Queue, b kernels.Batch, pass model.Output, kept, next kernels.Buf) *Step {
	s := &Step{Queue: q, Batch: b, Kept: kept, Next: next, Hidden: pass.Hidden}
	if tap := l.drafter.tap; tap >= 0 {
		s.Taps = pass.Taps[tap]
	}
	return s
}
