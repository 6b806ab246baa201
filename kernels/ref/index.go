package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// selection is a resolved Select; its attention has the rotation and the caches.
type selection struct {
	attention
	weights view
	s       kernels.IndexSpec
}

// Select sorts all keys of each row by their score.
func (r *recorder) Select(dst, proj, weights kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	r.add("select", func() (func() error, error) {
		o := operands{be: r.be}
		c, geo := o.layer(l, kernels.Attention)
		if o.err == nil {
			o.err = s.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		a := &selection{s: *s}
		a.c, a.kv, a.t = c, c.attn[l.Index], o.batch(b, "batch")
		a.attention.s = kernels.AttnSpec{HeadDim: s.Dim, Rotary: s.Rotary}
		a.dst = o.kind(dst, "dst", kernels.I32, b.Rows, -1)
		a.proj = o.kind(proj, "proj", kernels.BF16, b.Rows, (s.Heads+1)*s.Dim)
		a.weights = o.kind(weights, "weights", kernels.F32, b.Rows, s.Heads)
		a.rope = o.rope(s.Rope, s.Rotary)
		return a.run, o.err
	})
}

func (a *selection) run() error {
	spans, err := a.t.active(a.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		if err := a.span(&spans[i]); err != nil {
			return fmt.Errorf("span %d: %w", spans[i].index, err)
		}
	}
	return nil
}

// span rotates, stores the span's keys and chooses for each of its rows.
func (a *selection) span(sp *span) error {
	n := a.s.Heads * a.s.Dim
	rows := make([][]float64, sp.n)
	for i := range rows {
		rows[i] = append([]float64(nil), a.proj.floats(sp.off+i)...)
		if err := a.place(rows[i], norm{}, sp.pos[i]); err != nil {
			return err
		}
		if top := 32 * a.dst.cols; sp.pos[i] >= top {
			return fmt.Errorf("position %d of a mask of %d", sp.pos[i], top)
		}
	}
	var prefix [][]float64
	for pos := a.s.FirstKey; pos < sp.start; pos++ {
		page, err := a.c.page(sp.slot, pos)
		if err != nil {
			return err
		}
		prefix = append(prefix, a.kv.indexKey(page, pos))
	}
	for i := range rows {
		page, err := a.c.page(sp.slot, sp.start+i)
		if err != nil {
			return err
		}
		copy(a.kv.indexKey(page, sp.start+i), rows[i][n:])
	}
	parallel(sp.n, func(i int) {
		keys := append([][]float64(nil), prefix...)
		for _, j := range sp.path(i) {
			if sp.pos[j] >= a.s.FirstKey {
				keys = append(keys, rows[j][n:])
			}
		}
		a.choose(sp.off+i, rows[i], keys)
	})
	return nil
}

// choose writes the mask of a row whose keys stand from FirstKey on.
func (a *selection) choose(row int, q []float64, keys [][]float64) {
	scores, order := make([]float64, len(keys)), make([]int, len(keys))
	for i, k := range keys {
		order[i] = i
		for h, w := range a.weights.floats(row) {
			scores[i] += w * max(dot(q[h*a.s.Dim:(h+1)*a.s.Dim], k), 0)
		}
	}
	descending(order, func(i int) float64 { return scores[i] })
	mask := a.dst.ints(row)
	clear(mask)
	for _, i := range order[:min(a.s.TopK, len(order))] {
		pos := a.s.FirstKey + i
		mask[pos/32] |= 1 << (pos % 32)
	}
}
