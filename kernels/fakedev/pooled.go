package fakedev

import "exacta.dev/exacta/kernels"

// Hyper records the coefficients of streams.
func (r *recorder) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	o, spec := &operands{be: r.be}, *s
	d, in := o.buf(dst, "dst"), o.buf(x, "x")
	spec.Fn, spec.Base, spec.Scale = o.weight(s.Fn, "fn"), o.weight(s.Base, "base"), o.weight(s.Scale, "scale")
	r.record("hyper", o, func(q kernels.Queue) { q.Hyper(d, in, &spec) })
}

// GateUp records a SwiGLU with a limit.
func (r *recorder) GateUp(dst, x kernels.Buf, limit float32) {
	o := &operands{be: r.be}
	d, in := o.buf(dst, "dst"), o.buf(x, "x")
	r.record("gate up", o, func(q kernels.Queue) { q.GateUp(d, in, limit) })
}

// Rotate records the rotation of heads.
func (r *recorder) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	o, spec := &operands{be: r.be}, *s
	d, in, t := o.buf(dst, "dst"), o.buf(src, "src"), o.batch(b, "batch")
	spec.Rope = o.weight(s.Rope, "rope")
	r.record("rotate", o, func(q kernels.Queue) { q.Rotate(d, in, t, &spec) })
}

// Pool records the pooling of groups.
func (r *recorder) Pool(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	o, spec := &operands{be: r.be}, *s
	d, p, l, t := o.buf(dst, "dst"), o.buf(proj, "proj"), o.layer(c), o.batch(b, "batch")
	spec.Bias = o.weight(s.Bias, "bias")
	r.record("pool", o, func(q kernels.Queue) { q.Pool(d, p, l, t, &spec) })
}

// Keep records that rows are the keys of groups.
func (r *recorder) Keep(src kernels.Buf, c kernels.Layer, b *kernels.Batch, index bool) {
	o := &operands{be: r.be}
	s, l, t := o.buf(src, "src"), o.layer(c), o.batch(b, "batch")
	r.record("keep", o, func(q kernels.Queue) { q.Keep(s, l, t, index) })
}

// Choose records the choice of groups.
func (r *recorder) Choose(dst, query, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	o, spec := &operands{be: r.be}, *s
	d, in, w, l, t := o.buf(dst, "dst"), o.buf(query, "q"), o.buf(weights, "weights"), o.layer(c), o.batch(b, "batch")
	spec.Within, spec.Best = o.optional(s.Within, "within"), o.optional(s.Best, "best")
	r.record("choose", o, func(q kernels.Queue) { q.Choose(d, in, w, l, t, &spec) })
}

// AttendPooled records attention to a window and groups.
func (r *recorder) AttendPooled(dst, query, kv kernels.Buf, c, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	o, spec := &operands{be: r.be}, *s
	d, in, k, l, t := o.buf(dst, "dst"), o.buf(query, "q"), o.buf(kv, "kv"), o.layer(c), o.batch(b, "batch")
	g := l
	if s.Groups {
		g = o.layer(groups)
	}
	spec.Sink, spec.Chosen = o.weight(s.Sink, "sink"), o.optional(s.Chosen, "chosen")
	r.record("attend pooled", o, func(q kernels.Queue) { q.AttendPooled(d, in, k, l, g, t, &spec) })
}
