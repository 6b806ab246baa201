package engine

import (
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
)

// compacted is the memory for the view of a step in which trees are chains.
type compacted struct {
	rows   kernels.Buf // where each row comes from, I32 [rows, 1]
	hidden kernels.Buf
	taps   []kernels.Buf
	out    []kernels.Buf // taps cut to a step
	widths []int         // of taps
}

// moves says whether rows of the step change their places.
func (e *Engine) moves() bool {
	for i := range e.w.items {
		if e.w.items[i].path != nil {
			return true
		}
	}
	return false
}

// compact turns the spans of a step whose kept rows are not the first ones into
// chains of the kept rows, for device drafters: the batch's tables, and what the
// target gave for the rows. In a step without such spans it changes nothing.
func (e *Engine) compact(b kernels.Batch, out model.Output) (model.Output, error) {
	if !e.moves() || len(e.drafters) == 0 || e.drafters[0].device == nil {
		return out, nil
	}
	from := e.t.pathHost // rows of their spans, from Commit's path
	token := make([]int32, len(from))
	for i := range e.w.items {
		it := &e.w.items[i]
		for j := range it.tokens {
			at := it.rowOff + j
			token[at] = it.tokens[it.row(j)]
			from[at] += int32(it.rowOff)
			e.t.pos[at], e.t.parent[at] = e.t.start[i]+int32(j), int32(j-1)
		}
	}
	rows := e.c.rows.Top(b.Rows)
	e.q.Write(rows, int32Bytes(from))
	e.q.Write(b.Token, int32Bytes(token))
	e.q.Write(b.Pos, int32Bytes(e.t.pos))
	e.q.Write(b.Parent, int32Bytes(e.t.parent))
	hidden := e.c.hidden.Top(b.Rows)
	e.q.Gather(hidden, out.Hidden, rows)
	out.Hidden = hidden
	e.c.out = e.c.out[:0]
	for i, t := range out.Taps {
		tap := e.c.taps[i].Top(b.Rows)
		e.q.Gather(tap, t, rows)
		e.c.out = append(e.c.out, tap)
	}
	out.Taps = e.c.out
	return out, nil
}

// branches says whether a sequence's drafts may be trees.
func (s *Sequence) branches() bool {
	if s.k() == 0 {
		return false
	}
	d, ok := s.drafter.Drafter.(ChainDrafter)
	return !ok || !d.Chains()
}

// reserveCompact allocates for the first sequence whose drafts may be trees. What is
// lacking is that sequence's loss alone.
func (e *Engine) reserveCompact() error {
	if !e.c.rows.None() || len(e.drafters) == 0 || e.drafters[0].device == nil {
		return nil
	}
	n, c, taps := e.t.rows, compacted{widths: e.c.widths, taps: make([]kernels.Buf, len(e.c.widths))}, []bufSpec{}
	for i, w := range e.c.widths {
		taps = append(taps, bufSpec{&c.taps[i], kernels.Activations, kernels.BF16, n, w})
	}
	bufs, err := e.allocAll(append(taps,
		bufSpec{&c.hidden, kernels.Activations, kernels.BF16, n, e.m.Config.HiddenSize}, bufSpec{&c.rows, kernels.Tables, kernels.I32, n, 1}))
	if err != nil {
		return err
	}
	e.extra, e.c = append(e.extra, bufs...), c
	return nil
}

// bufSpec is a buffer to allocate.
type bufSpec struct {
	dst        *kernels.Buf
	purpose    kernels.Purpose
	kind       kernels.Kind
	rows, cols int
}

// allocAll allocates all of the list, or nothing.
func (e *Engine) allocAll(list []bufSpec) (bufs []kernels.Buf, err error) {
	for _, s := range list {
		b, err := e.be.Alloc(s.purpose, s.kind, s.rows, s.cols)
		if err != nil {
			for _, b := range bufs {
				e.be.Free(b)
			}
			return nil, err
		}
		*s.dst, bufs = b, append(bufs, b)
	}
	return bufs, nil
}
