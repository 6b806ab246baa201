package fakedev

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

var (
	_ kernels.Looper    = (*Backend)(nil)
	_ kernels.LoopQueue = (*queue)(nil)
	_ kernels.LoopQueue = (*capture)(nil)
)

// ring is a ring of the wrapped backend. The device goes on while the host looks at it:
// each look that finds nothing runs what is recorded, one command after the other, up
// to the next entry.
type ring struct {
	be    *Backend
	inner kernels.Ring
}

// Ring makes a ring of the wrapped backend.
func (be *Backend) Ring(entries, words int) (kernels.Ring, error) {
	if err := be.usable("ring"); err != nil {
		return nil, err
	}
	in, ok := be.inner.(kernels.Looper)
	if !ok {
		return nil, fmt.Errorf("ring: backend %s has none", be.inner.Info().Name)
	}
	r := &ring{be: be}
	err := be.open(func() (err error) { r.inner, err = in.Ring(entries, words); return })
	return r, err
}

// Take implements kernels.Ring.
func (r *ring) Take(e *kernels.Entry) (there bool, err error) {
	q := r.be.q
	for {
		err = r.be.open(func() (err error) { there, err = r.inner.Take(e); return })
		if q.err != nil {
			err = q.err
		}
		if there || err != nil || len(q.pending) == 0 {
			return there && err == nil, err
		}
		q.execute(q.ran + 1)
	}
}

// Close implements kernels.Ring.
func (r *ring) Close() error { return r.inner.Close() }

// Waits returns how often the host has waited for the device: for a ticket, for the
// whole queue, or for counters.
func (be *Backend) Waits() int { return be.q.waits }

// Post records an entry of a ring.
func (r *recorder) Post(to kernels.Ring, views ...kernels.Buf) {
	o := &operands{be: r.be}
	target, ok := to.(*ring)
	if !ok || target.be != r.be {
		o.fail("the ring is not of this device")
		target = &ring{}
	}
	from := make([]kernels.Buf, len(views))
	for i, b := range views {
		from[i] = o.buf(b, "view")
	}
	r.record("post", o, func(q kernels.Queue) { q.(kernels.LoopQueue).Post(target.inner, from...) })
}

// Draw records the choice of tokens.
func (r *recorder) Draw(dst, stats, logits, how kernels.Buf, b *kernels.Batch, vocab int) {
	o := &operands{be: r.be}
	d, s, l, h, t := o.buf(dst, "dst"), o.buf(stats, "stats"), o.buf(logits, "logits"), o.buf(how, "how"), o.batch(b, "batch")
	r.record("draw", o, func(q kernels.Queue) { q.(kernels.LoopQueue).Draw(d, s, l, h, t, vocab) })
}

// Limit records the end of drafts.
func (r *recorder) Limit(drafts, left, most kernels.Buf) {
	o := &operands{be: r.be}
	d, l, m := o.buf(drafts, "drafts"), o.buf(left, "left"), o.buf(most, "most")
	r.record("limit", o, func(q kernels.Queue) { q.(kernels.LoopQueue).Limit(d, l, m) })
}

// Halt records the end of spans of a loop.
func (r *recorder) Halt(slots, left, kept, next, drafts, stops kernels.Buf) {
	o := &operands{be: r.be}
	s, l, k, n := o.buf(slots, "slots"), o.buf(left, "left"), o.buf(kept, "kept"), o.buf(next, "next")
	d, e := o.optional(drafts, "drafts"), o.buf(stops, "stops")
	r.record("halt", o, func(q kernels.Queue) { q.(kernels.LoopQueue).Halt(s, l, k, n, d, e) })
}
