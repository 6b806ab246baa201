package cpu

import (
	"fmt"
	"time"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

var (
	_ kernels.Looper    = (*Backend)(nil)
	_ kernels.LoopQueue = (*queue)(nil)
)

// Ring implements kernels.Looper: entries lie in the heap.
func (b *Backend) Ring(entries, words int) (kernels.Ring, error) {
	if b.closed {
		return nil, errClosed
	}
	if entries <= 0 || words < 0 {
		return nil, fmt.Errorf("cpu: a ring of %d entries of %d words", entries, words)
	}
	return &kernels.MemoryRing{Advance: b.queue.Err}, nil
}

// call pushes an operation that worker 0 runs alone.
func (q *queue) call(f func(w *worker)) {
	q.list.calls = append(q.list.calls, f)
	q.push(opCall, true, len(q.list.calls)-1)
}

// ints views the rows of an I32 operand.
func (v *view) ints(r int) []int32 { return unsafe.Slice((*int32)(v.row(r)), v.cols) }

// Post copies the rows of views to the ring.
func (q *queue) Post(r kernels.Ring, views ...kernels.Buf) {
	const op = "post"
	if q.off() {
		return
	}
	ring, ok := r.(*kernels.MemoryRing)
	if !ok {
		q.bad("%s: the ring is another backend's", op)
		return
	}
	var from []view
	for _, b := range views {
		from = append(from, q.typed(op, "view", b, kernels.I32))
	}
	if q.off() {
		return
	}
	q.call(func(*worker) {
		var data []int32
		for i := range from {
			for r := range from[i].rows {
				data = append(data, from[i].ints(r)...)
			}
		}
		ring.Put(time.Since(q.b.opened), q.b.worked(), data)
	})
}

// Draw chooses tokens by the logits of wanted rows.
func (q *queue) Draw(dst, stats, logits, how kernels.Buf, b *kernels.Batch, vocab int) {
	const op = "draw"
	if q.off() {
		return
	}
	t := q.batch(op, b)
	d, s := q.column(op, "dst", dst, b.LogitRows), q.typed(op, "stats", stats, kernels.I32)
	l, h := q.typed(op, "logits", logits, kernels.F32), q.typed(op, "how", how, kernels.I32)
	if q.off() {
		return
	}
	if s.rows < b.LogitRows || l.rows < b.LogitRows || vocab < 1 || vocab > l.cols || h.rows < b.Spans || h.cols != kernels.DrawCols {
		q.bad("%s: %d statistics and [%d, %d] logits for %d rows of a vocabulary of %d, [%d, %d] parameters for %d spans", op, s.rows, l.rows, l.cols, b.LogitRows, vocab, h.rows, h.cols, b.Spans)
		return
	}
	scratch := make([]float64, vocab)
	q.call(func(w *worker) {
		for i := range b.LogitRows {
			row := t.logit.at(i)
			if row < 0 {
				d.set(i, -1)
				continue
			}
			if row >= t.rows || t.span.at(row) < 0 || t.span.at(row) >= t.spans {
				w.fail("cpu: draw: row %d is wanted, and idle", row)
				return
			}
			d.set(i, int(kernels.DrawRow(scratch, l.f32(i)[:vocab], s.ints(i)[kernels.StatTop1], t.pos.at(row)+1, h.ints(t.span.at(row)))))
		}
	})
}

// Limit ends drafts early.
func (q *queue) Limit(drafts, left, most kernels.Buf) {
	const op = "limit"
	if q.off() {
		return
	}
	d := q.typed(op, "drafts", drafts, kernels.I32)
	l, m := q.column(op, "left", left, d.rows), q.column(op, "most", most, d.rows)
	if q.off() {
		return
	}
	q.call(func(*worker) {
		for i := range d.rows {
			row := d.ints(i)
			for j := max(0, min(m.at(i), l.at(i)-1)); j < len(row); j++ {
				row[j] = -1
			}
		}
	})
}

// Halt takes spans that end out of a loop.
func (q *queue) Halt(slots, left, kept, next, drafts, stops kernels.Buf) {
	const op = "halt"
	if q.off() {
		return
	}
	n := int(slots.Rows)
	s, l := q.column(op, "slots", slots, n), q.column(op, "left", left, n)
	k, x := q.column(op, "kept", kept, n), q.column(op, "next", next, n)
	e := q.typed(op, "stops", stops, kernels.I32)
	var d view
	if !drafts.None() {
		d = q.typed(op, "drafts", drafts, kernels.I32)
	}
	if q.off() {
		return
	}
	if e.rows < n || !d.none() && d.rows < n {
		q.bad("%s: %d stops and %d drafts for %d spans", op, e.rows, d.rows, n)
		return
	}
	q.call(func(w *worker) {
		for i := range n {
			var ids []int32
			if !d.none() {
				ids = d.ints(i)
			}
			if c := k.at(i); c < 0 || c > len(ids)+1 {
				w.fail("cpu: halt: span %d keeps %d of %d rows", i, c, len(ids)+1)
				return
			}
			slot, rest := kernels.HaltRow(int32(s.at(i)), int32(l.at(i)), int32(k.at(i)), int32(x.at(i)), ids, e.ints(i))
			s.set(i, int(slot))
			l.set(i, int(rest))
		}
	})
}
