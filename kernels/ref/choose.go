package ref

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// Choose sorts all groups of each row by their score.
func (r *recorder) Choose(dst, q, weights kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	spec := *s
	r.add("choose", func() (func() error, error) {
		o := operands{be: r.be}
		op, geo := o.pooled(l, b)
		if o.err == nil {
			o.err = spec.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		c := &choice{pooledOp: op, s: spec}
		c.dst = o.kind(dst, "dst", kernels.I32, b.Rows, -1)
		c.q = o.kind(q, "q", kernels.BF16, b.Rows, spec.Heads*spec.Dim)
		c.weights = o.kind(weights, "weights", kernels.F32, b.Rows, spec.Heads)
		if !spec.Within.None() {
			c.within = o.kind(spec.Within, "within", kernels.I32, b.Rows, -1)
		}
		if !spec.Best.None() {
			c.best = o.kind(spec.Best, "best", kernels.I32, b.Rows, c.dst.cols)
		}
		return func() error { return c.spans(c.span) }, o.err
	})
}

// choice is a resolved Choose.
type choice struct {
	pooledOp
	s                             kernels.ChooseSpec
	dst, q, weights, within, best view
}

func (c *choice) span(sp *span) error {
	for i := range sp.n {
		row := sp.off + i
		groups, err := c.c.groupsOf(c.p, sp, i)
		if err != nil {
			return err
		}
		if top := 32 * c.dst.cols; len(groups) > top {
			return fmt.Errorf("%d groups of a mask of %d", len(groups), top)
		}
		scores := make([]float64, len(groups))
		parallel(len(groups), func(g int) {
			key := groups[g][c.p.spec.HeadDim:]
			for h, w := range c.weights.floats(row) {
				scores[g] += w * max(dot(c.q.floats(row)[h*c.s.Dim:(h+1)*c.s.Dim], key), 0)
			}
		})
		if !c.best.none() {
			c.blocks(c.best.ints(row), scores)
		}
		c.choose(row, scores)
	}
	return nil
}

// choose writes the mask of a row.
func (c *choice) choose(row int, scores []float64) {
	var order []int
	for g := range scores {
		if c.within.none() || inMask(c.within.ints(row), g) {
			order = append(order, g)
		}
	}
	descending(order, func(g int) float64 { return scores[g] })
	mask := c.dst.ints(row)
	clear(mask)
	for _, g := range order[:min(c.s.TopK, len(order))] {
		mask[g/32] |= 1 << (g % 32)
	}
}

// blocks writes the mask of the groups of the best blocks.
func (c *choice) blocks(mask []int32, scores []float64) {
	n := (len(scores) + c.s.BlockSize - 1) / c.s.BlockSize
	value, order := make([]float64, n), make([]int, n)
	for b := range value {
		order[b], value[b] = b, math.Inf(-1)
		for _, v := range scores[b*c.s.BlockSize : min((b+1)*c.s.BlockSize, len(scores))] {
			if v > value[b] {
				value[b] = v
			}
		}
	}
	if n > 0 {
		value[n-1] = math.Inf(1)
	}
	descending(order, func(b int) float64 { return value[b] })
	clear(mask)
	for _, b := range order[:min(c.s.BestBlocks, n)] {
		for g := b * c.s.BlockSize; g < min((b+1)*c.s.BlockSize, len(scores)); g++ {
			mask[g/32] |= 1 << (g % 32)
		}
	}
}
