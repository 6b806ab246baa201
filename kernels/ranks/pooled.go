package ranks

import "exacta.dev/exacta/kernels"

// pooledSpecs are the translated specs of the operation that is recorded.
type pooledSpecs struct {
	hyper  kernels.HyperSpec
	rotate kernels.RotateSpec
	pool   kernels.PoolSpec
	attend kernels.PooledSpec
}

// Hyper computes the coefficients of streams.
func (l *local) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	if !l.ready() {
		return
	}
	t := &l.pooled.hyper
	*t = *s
	t.Fn, t.Base, t.Scale = l.be.replica(s.Fn), l.be.replica(s.Base), l.be.replica(s.Scale)
	l.in.Hyper(dst, x, t)
}

// GateUp is a SwiGLU with a limit over gathered halves.
func (l *local) GateUp(dst, x kernels.Buf, limit float32) {
	if l.ready() {
		l.in.GateUp(dst, x, limit)
	}
}

// Rotate rotates all heads on every rank.
func (l *local) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	if !l.ready() {
		return
	}
	t := &l.pooled.rotate
	*t = *s
	t.Rope = l.be.replica(s.Rope)
	l.in.Rotate(dst, src, b, t)
}

// Pool pools groups.
func (l *local) Pool(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	if !l.ready() {
		return
	}
	t := &l.pooled.pool
	*t = *s
	t.Bias = l.be.replica(s.Bias)
	l.in.Pool(dst, proj, c, b, t)
}

// Keep keeps groups.
func (l *local) Keep(src kernels.Buf, c kernels.Layer, b *kernels.Batch, index bool) {
	if l.ready() {
		l.in.Keep(src, c, b, index)
	}
}

// Choose chooses groups, all heads on every rank.
func (l *local) Choose(dst, q, weights kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	if l.ready() {
		l.in.Choose(dst, q, weights, c, b, s)
	}
}

// AttendPooled attends to a window and groups, all heads on every rank.
func (l *local) AttendPooled(dst, q, kv kernels.Buf, c, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	if !l.ready() {
		return
	}
	t := &l.pooled.attend
	*t = *s
	t.Sink = l.be.replica(s.Sink)
	l.in.AttendPooled(dst, q, kv, c, groups, b, t)
}

// Hyper captures the coefficients of streams.
func (c *capture) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	spec := *s
	c.add(func(l *local) { l.Hyper(dst, x, &spec) })
}

// GateUp captures a SwiGLU with a limit.
func (c *capture) GateUp(dst, x kernels.Buf, limit float32) {
	c.add(func(l *local) { l.GateUp(dst, x, limit) })
}

// Rotate captures the rotation of heads.
func (c *capture) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Rotate(dst, src, &t, &spec) })
}

// Pool captures the pooling of groups.
func (c *capture) Pool(dst, proj kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Pool(dst, proj, layer, &t, &spec) })
}

// Keep captures that rows are the keys of groups.
func (c *capture) Keep(src kernels.Buf, layer kernels.Layer, b *kernels.Batch, index bool) {
	t := *b
	c.add(func(l *local) { l.Keep(src, layer, &t, index) })
}

// Choose captures the choice of groups.
func (c *capture) Choose(dst, q, weights kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Choose(dst, q, weights, layer, &t, &spec) })
}

// AttendPooled captures attention to a window and groups.
func (c *capture) AttendPooled(dst, q, kv kernels.Buf, layer, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.AttendPooled(dst, q, kv, layer, groups, &t, &spec) })
}
