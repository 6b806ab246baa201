package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// blockSelection is a resolved SelectBlocks; its attention has the rotation, the norms
// and the caches.
type blockSelection struct {
	attention
	s kernels.BlockSpec
}

// SelectBlocks sorts all whole blocks of each row by their score.
func (r *recorder) SelectBlocks(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	r.add("select blocks", func() (func() error, error) {
		o := operands{be: r.be}
		c, geo := o.layer(l, kernels.Attention)
		if o.err == nil {
			o.err = s.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		a := &blockSelection{s: *s}
		a.c, a.kv, a.t = c, c.attn[l.Index], o.batch(b, "batch")
		a.attention.s = kernels.AttnSpec{HeadDim: s.Dim, Rotary: s.Rotary}
		a.qNorm, a.kNorm = o.norm(s.QNorm, s.Dim, "query norm"), o.norm(s.KNorm, s.Dim, "key norm")
		a.dst = o.kind(dst, "dst", kernels.I32, b.Rows, -1)
		a.proj = o.kind(proj, "proj", kernels.BF16, b.Rows, (s.Heads+1)*s.Dim)
		a.rope = o.rope(s.Rope, s.Rotary)
		return a.run, o.err
	})
}

func (a *blockSelection) run() error {
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

// span stores the span's keys and chooses for each of its rows.
func (a *blockSelection) span(sp *span) error {
	n := a.s.Heads * a.s.Dim
	var prefix [][]float64
	for pos := a.s.FirstKey; pos < sp.start; pos++ {
		page, err := a.c.page(sp.slot, pos)
		if err != nil {
			return err
		}
		prefix = append(prefix, a.kv.indexKey(page, pos))
	}
	rows := make([][]float64, sp.n)
	for i := range rows {
		rows[i] = append([]float64(nil), a.proj.floats(sp.off+i)...)
		if err := a.place(rows[i][:n], a.qNorm, sp.pos[i]); err != nil {
			return err
		}
		if top := 32 * a.dst.cols; sp.pos[i] >= top {
			return fmt.Errorf("position %d of a mask of %d", sp.pos[i], top)
		}
		page, err := a.c.page(sp.slot, sp.start+i)
		if err != nil {
			return err
		}
		copy(a.kv.indexKey(page, sp.start+i), rows[i][n:])
	}
	for i := range rows {
		keys := append([][]float64(nil), prefix...)
		for _, j := range sp.path(i) {
			if sp.pos[j] >= a.s.FirstKey {
				keys = append(keys, rows[j][n:])
			}
		}
		if err := a.choose(a.dst.ints(sp.off+i), rows[i][:n], keys); err != nil {
			return err
		}
	}
	return nil
}

// choose writes the mask of a row whose keys stand from FirstKey on.
func (a *blockSelection) choose(mask []int32, q []float64, keys [][]float64) error {
	d, blocks := a.s.Dim, len(keys)/a.s.Ratio
	scores, order := make([]float64, blocks), make([]int, blocks)
	for b := range scores {
		order[b] = b
		key := make([]float64, d)
		for _, k := range keys[b*a.s.Ratio:][:a.s.Ratio] {
			for c, v := range k {
				key[c] += v / float64(a.s.Ratio)
			}
		}
		if err := a.place(key, a.kNorm, a.s.FirstKey+b*a.s.Ratio); err != nil {
			return err
		}
		for at := 0; at < len(q); at += d {
			scores[b] += max(dot(q[at:at+d], key), 0)
		}
	}
	descending(order, func(i int) float64 { return scores[i] })
	clear(mask)
	set := func(from, to int) {
		for pos := a.s.FirstKey + from; pos < a.s.FirstKey+to; pos++ {
			mask[pos/32] |= 1 << (pos % 32)
		}
	}
	for _, b := range order[:min(a.s.TopK, blocks)] {
		set(b*a.s.Ratio, (b+1)*a.s.Ratio)
	}
	set(blocks*a.s.Ratio, len(keys))
	return nil
}
