package ranks

import "exacta.dev/exacta/kernels"

// What every rank does whole with residual streams and n-grams: tables of rows are
// replicated.

// Lookup gathers rows.
func (l *local) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	if l.ready() {
		l.in.Lookup(dst, l.be.replica(table), ids)
	}
}

// Grams hashes n-grams.
func (l *local) Grams(dst kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	if l.ready() {
		l.in.Grams(dst, c, b, s)
	}
}

// Activate applies a function to each element.
func (l *local) Activate(dst, x kernels.Buf, a kernels.Activation) {
	if l.ready() {
		l.in.Activate(dst, x, a)
	}
}

// Collapse brings streams together.
func (l *local) Collapse(dst, x, weights kernels.Buf, scale float32) {
	if l.ready() {
		l.in.Collapse(dst, x, weights, scale)
	}
}

// Spread updates streams.
func (l *local) Spread(x, y, inject, mix kernels.Buf) {
	if l.ready() {
		l.in.Spread(x, y, inject, mix)
	}
}

// Gate compares q with k by stream.
func (l *local) Gate(dst, q, k kernels.Buf) {
	if l.ready() {
		l.in.Gate(dst, q, k)
	}
}

// Blend adds an n-gram memory to streams.
func (l *local) Blend(x, src kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	if !l.ready() {
		return
	}
	l.bl = *s
	l.bl.Taps, l.bl.Norm = l.be.replica(s.Taps), l.be.norm(s.Norm)
	l.in.Blend(x, src, c, b, &l.bl)
}

// SelectBlocks chooses keys by blocks, all heads on every rank.
func (l *local) SelectBlocks(dst, proj kernels.Buf, c kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	if !l.ready() {
		return
	}
	l.blk = *s
	l.blk.QNorm, l.blk.KNorm, l.blk.Rope = l.be.norm(s.QNorm), l.be.norm(s.KNorm), l.be.replica(s.Rope)
	l.in.SelectBlocks(dst, proj, c, b, &l.blk)
}

// Lookup captures a lookup.
func (c *capture) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	c.add(func(l *local) { l.Lookup(dst, table, ids) })
}

// Grams captures the hashing of n-grams.
func (c *capture) Grams(dst kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Grams(dst, layer, &t, &spec) })
}

// Activate captures a function of each element.
func (c *capture) Activate(dst, x kernels.Buf, a kernels.Activation) {
	c.add(func(l *local) { l.Activate(dst, x, a) })
}

// Collapse captures a sum of streams.
func (c *capture) Collapse(dst, x, weights kernels.Buf, scale float32) {
	c.add(func(l *local) { l.Collapse(dst, x, weights, scale) })
}

// Spread captures an update of streams.
func (c *capture) Spread(x, y, inject, mix kernels.Buf) {
	c.add(func(l *local) { l.Spread(x, y, inject, mix) })
}

// Gate captures the gates of streams.
func (c *capture) Gate(dst, q, k kernels.Buf) { c.add(func(l *local) { l.Gate(dst, q, k) }) }

// Blend captures the addition of an n-gram memory.
func (c *capture) Blend(x, src kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.Blend(x, src, layer, &t, &spec) })
}

// SelectBlocks captures the choice of keys by blocks.
func (c *capture) SelectBlocks(dst, proj kernels.Buf, layer kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	t, spec := *b, *s
	c.add(func(l *local) { l.SelectBlocks(dst, proj, layer, &t, &spec) })
}
