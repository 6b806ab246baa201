package fakedev

import "exacta.dev/exacta/kernels"

// Lookup records a lookup of rows.
func (r *recorder) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	o := &operands{be: r.be}
	d, t, i := o.buf(dst, "dst"), o.weight(table, "table"), o.buf(ids, "ids")
	r.record("lookup", o, func(q kernels.Queue) { q.Lookup(d, t, i) })
}

// Grams records the hashing of n-grams.
func (r *recorder) Grams(dst kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	o := &operands{be: r.be}
	d, l, t, spec := o.buf(dst, "dst"), o.layer(c), o.batch(b, "batch"), *s
	spec.Map = o.optional(s.Map, "map")
	r.record("grams", o, func(q kernels.Queue) { q.Grams(d, l, t, &spec) })
}

// Activate records a function of each element.
func (r *recorder) Activate(dst, x kernels.Buf, a kernels.Activation) {
	o := &operands{be: r.be}
	d, s := o.buf(dst, "dst"), o.buf(x, "x")
	r.record("activate", o, func(q kernels.Queue) { q.Activate(d, s, a) })
}

// Collapse records the sum of streams.
func (r *recorder) Collapse(dst, x, weights kernels.Buf, scale float32) {
	o := &operands{be: r.be}
	d, s, w := o.buf(dst, "dst"), o.buf(x, "x"), o.optional(weights, "weights")
	r.record("collapse", o, func(q kernels.Queue) { q.Collapse(d, s, w, scale) })
}

// Spread records an update of streams.
func (r *recorder) Spread(x, y, inject, mix kernels.Buf) {
	o := &operands{be: r.be}
	s, i, w, m := o.buf(x, "x"), o.buf(y, "y"), o.buf(inject, "inject"), o.optional(mix, "mix")
	r.record("spread", o, func(q kernels.Queue) { q.Spread(s, i, w, m) })
}

// Gate records the gates of streams.
func (r *recorder) Gate(dst, q, k kernels.Buf) {
	o := &operands{be: r.be}
	d, a, b := o.buf(dst, "dst"), o.buf(q, "q"), o.buf(k, "k")
	r.record("gate", o, func(q kernels.Queue) { q.Gate(d, a, b) })
}

// Blend records the addition of an n-gram memory to streams.
func (r *recorder) Blend(x, src kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	o := &operands{be: r.be}
	d, in, l, t, spec := o.buf(x, "x"), o.buf(src, "src"), o.layer(c), o.batch(b, "batch"), *s
	spec.Taps, spec.Norm = o.weight(s.Taps, "taps"), o.norm(s.Norm, "norm")
	r.record("blend", o, func(q kernels.Queue) { q.Blend(d, in, l, t, &spec) })
}

// SelectBlocks records the choice of keys by blocks.
func (r *recorder) SelectBlocks(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	o := &operands{be: r.be}
	d, p, l, t, spec := o.buf(dst, "dst"), o.buf(proj, "proj"), o.layer(c), o.batch(b, "batch"), *s
	spec.QNorm, spec.KNorm = o.norm(s.QNorm, "query norm"), o.norm(s.KNorm, "key norm")
	spec.Rope = o.weight(s.Rope, "rope")
	r.record("select blocks", o, func(q kernels.Queue) { q.SelectBlocks(d, p, l, t, &spec) })
}
