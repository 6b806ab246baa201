package ranks_test

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ranks"
)

func (v *voices) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Lookup(dst, table, ids) })
}

func (v *voices) Grams(dst kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Grams(dst, c, &t, &spec) })
}

func (v *voices) Activate(dst, x kernels.Buf, a kernels.Activation) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Activate(dst, x, a) })
}

func (v *voices) Collapse(dst, x, weights kernels.Buf, scale float32) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Collapse(dst, x, weights, scale) })
}

func (v *voices) Spread(x, y, inject, mix kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Spread(x, y, inject, mix) })
}

func (v *voices) Gate(dst, a, b kernels.Buf) {
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Gate(dst, a, b) })
}

func (v *voices) Blend(x, src kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.Blend(x, src, c, &t, &spec) })
}

func (v *voices) SelectBlocks(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	t, spec := *b, *s
	v.do(func(_ *ranks.Backend, q kernels.Queue) { q.SelectBlocks(dst, proj, c, &t, &spec) })
}
