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
	if err := e.reserveCompact(out); err != nil {
		return out, err
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

// reserveCompact allocates on the first tree.
func (e *Engine) reserveCompact(out model.Output) (err error) {
	if !e.c.rows.None() {
		return nil
	}
	n := e.t.rows
	alloc := func(p kernels.Purpose, k kernels.Kind, cols int32) (b kernels.Buf) {
		if err == nil {
			if b, err = e.be.Alloc(p, k, n, int(cols)); err == nil {
				e.extra = append(e.extra, b)
			}
		}
		return b
	}
	for _, t := range out.Taps {
		e.c.taps = append(e.c.taps, alloc(kernels.Activations, kernels.BF16, t.Cols))
	}
	e.c.hidden = alloc(kernels.Activations, kernels.BF16, out.Hidden.Cols)
	e.c.rows = alloc(kernels.Tables, kernels.I32, 1)
	return err
}
