package faults

import (
	"slices"
	"unsafe"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// tap is the queue that the target's pass is recorded to, with operations that
// may be replaced. It remembers what the host wrote to the tables. Drafters get
// the queue behind it.
type tap struct {
	kernels.Queue
	written map[uint32][]int32 // by buffer, from its first row
	rows    int                // of the pass under way
	decode  int                // rows of decoding sequences in the step

	matMul  func(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear)
	gather  func(dst, src, rows kernels.Buf)
	attend  func(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec)
	delta   func(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec)
	commit  func(c kernels.Caches, b *kernels.Batch, kept kernels.Buf)
	restore func(c kernels.Caches, slot, snapshot, length int)
	save    func(c kernels.Caches, slot, snapshot int)
	reset   func(c kernels.Caches, slot int)
}

// onQueue wires a tap, with hooks beside it where a fault needs them too.
func onQueue(replace func(t *tap), h *hooks) trial.Wiring {
	if h == nil {
		h = &hooks{}
	}
	t := &tap{written: map[uint32][]int32{}}
	h.queue = func(q kernels.Queue) kernels.Queue {
		t.Queue = q
		replace(t)
		return t
	}
	span := h.span
	h.span = func(seq *engine.Sequence, start int, tokens []int32) (int, []int32) {
		if span != nil {
			start, tokens = span(seq, start, tokens)
		}
		t.decode += len(tokens)
		return start, tokens
	}
	behind := trial.Over{
		Propose: func(inner engine.Drafter, _ kernels.Queue, asks []*engine.Ask) error {
			return inner.Propose(t.Queue, asks)
		},
		Committed: func(inner engine.Drafter, s *engine.Step) error {
			c := *s
			c.Queue = t.Queue
			return inner.Committed(&c)
		},
	}
	return trial.Wiring{Interposer: h, Drafter: func(d engine.Drafter) engine.Drafter { return trial.Wrap(d, behind) }}
}

// mixed says whether the pass under way has prefill rows beside decoding ones.
func (t *tap) mixed() bool { return t.decode > 0 && t.rows > t.decode }

// Write implements kernels.Queue.
func (t *tap) Write(dst kernels.Buf, src []byte) {
	if dst.Kind == kernels.I32 && dst.Cols == 1 && len(src) > 0 {
		v := t.written[dst.ID]
		if end := int(dst.Row + dst.Rows); len(v) < end {
			v = append(v, make([]int32, end-len(v))...)
		}
		copy(v[dst.Row:], unsafe.Slice((*int32)(unsafe.Pointer(&src[0])), len(src)/4))
		t.written[dst.ID] = v
	}
	t.Queue.Write(dst, src)
}

// table returns a copy of what the host wrote to a table; nil if it did not.
func (t *tap) table(b kernels.Buf) []int32 {
	v := t.written[b.ID]
	if len(v) < int(b.Row+b.Rows) {
		return nil
	}
	return slices.Clone(v[b.Row : b.Row+b.Rows])
}

// put writes a table.
func (t *tap) put(dst kernels.Buf, v []int32) {
	t.Queue.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v)))
}

// Embed implements kernels.Queue: a pass begins with it.
func (t *tap) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	t.rows = int(dst.Rows)
	t.Queue.Embed(dst, table, ids)
}

// MatMul implements kernels.Queue.
func (t *tap) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	if t.matMul != nil {
		t.matMul(dst, w, x, l)
		return
	}
	t.Queue.MatMul(dst, w, x, l)
}

// Gather implements kernels.Queue.
func (t *tap) Gather(dst, src, rows kernels.Buf) {
	if t.gather != nil {
		t.gather(dst, src, rows)
		return
	}
	t.Queue.Gather(dst, src, rows)
}

// Attend implements kernels.Queue.
func (t *tap) Attend(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	if t.attend != nil {
		t.attend(dst, proj, c, b, s)
		return
	}
	t.Queue.Attend(dst, proj, c, b, s)
}

// Delta implements kernels.Queue.
func (t *tap) Delta(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.DeltaSpec) {
	if t.delta != nil {
		t.delta(dst, proj, c, b, s)
		return
	}
	t.Queue.Delta(dst, proj, c, b, s)
}

// Commit implements kernels.Queue: a step's pass ends with it.
func (t *tap) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	t.decode = 0
	if t.commit != nil {
		t.commit(c, b, kept)
		return
	}
	t.Queue.Commit(c, b, kept, path)
}

// Restore implements kernels.Queue.
func (t *tap) Restore(c kernels.Caches, slot, snapshot, length int) {
	if t.restore != nil {
		t.restore(c, slot, snapshot, length)
		return
	}
	t.Queue.Restore(c, slot, snapshot, length)
}

// Save implements kernels.Queue.
func (t *tap) Save(c kernels.Caches, slot, snapshot int) {
	if t.save != nil {
		t.save(c, slot, snapshot)
		return
	}
	t.Queue.Save(c, slot, snapshot)
}

// Reset implements kernels.Queue.
func (t *tap) Reset(c kernels.Caches, slot int) {
	if t.reset != nil {
		t.reset(c, slot)
		return
	}
	t.Queue.Reset(c, slot)
}
