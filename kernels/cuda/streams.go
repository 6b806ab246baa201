//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// maxStreams is MAX_STREAMS: the most residual streams.
const maxStreams = 16

// Activate applies a function to each element.
func (q *queue) Activate(dst, x kernels.Buf, f kernels.Activation) {
	q.do(opActivate, func() {
		q.failWith(f.Check())
		d := q.float(dst, "dst", 0, -1)
		s := q.of(x, "x", kernels.F32, d.rows, d.cols)
		*args[activateArgs](q) = activateArgs{
			env: q.head(), dst: d.view(), x: s.view(), in: f.In, out: f.Out,
			act: int32(f.Act), cols: int32(d.cols), wide: flag(d.kind == kernels.F32),
		}
		q.launch(kActivate, d.rows, 1, 0)
	})
}

// streams returns the number of streams of width h in cols columns.
func (q *queue) streams(cols, h int) int {
	if q.bad == nil && (h == 0 || cols == 0 || cols%h != 0 || cols/h > maxStreams) {
		q.fail("x has %d columns; it must have 1 to %d streams of %d", cols, maxStreams, h)
	}
	if q.bad != nil {
		return 1
	}
	return cols / h
}

// Collapse brings the streams of a row together.
func (q *queue) Collapse(dst, x, weights kernels.Buf, scale float32) {
	q.do(opCollapse, func() {
		d := q.of(dst, "dst", kernels.BF16, 0, -1)
		s := q.of(x, "x", kernels.BF16, d.rows, -1)
		n := q.streams(s.cols, d.cols)
		a := collapseArgs{env: q.head(), dst: d.view(), x: s.view(), scale: scale, n: int32(n), h: int32(d.cols)}
		if !weights.None() {
			w := q.of(weights, "weights", kernels.F32, d.rows, -1)
			if q.bad == nil && w.cols != n && w.cols != s.cols {
				q.fail("weights have %d columns; they must have %d or %d", w.cols, n, s.cols)
			}
			a.w, a.each = w.view(), flag(w.cols != n)
		}
		*args[collapseArgs](q) = a
		q.launch(kCollapse, d.rows, 1, 0)
	})
}

// Spread gives the output of a sub-layer to the streams.
func (q *queue) Spread(x, y, inject, mix kernels.Buf) {
	q.do(opSpread, func() {
		s := q.of(x, "x", kernels.BF16, 0, -1)
		in := q.of(y, "y", kernels.BF16, s.rows, -1)
		n := q.streams(s.cols, in.cols)
		a := spreadArgs{env: q.head(), x: s.view(), y: in.view(), n: int32(n), h: int32(in.cols)}
		a.inject = q.of(inject, "inject", kernels.F32, s.rows, n).view()
		if !mix.None() {
			a.mix = q.of(mix, "mix", kernels.F32, s.rows, n*n).view()
		}
		*args[spreadArgs](q) = a
		q.launch(kSpread, s.rows, 1, 0)
	})
}

// Gate compares q with k by stream.
func (q *queue) Gate(dst, x, k kernels.Buf) {
	q.do(opGate, func() {
		d := q.float(dst, "dst", 0, -1)
		s := q.of(x, "q", kernels.BF16, d.rows, -1)
		t := q.of(k, "k", kernels.BF16, d.rows, s.cols)
		if q.bad == nil && (d.cols == 0 || s.cols%d.cols != 0) {
			q.fail("q has %d columns for %d gates", s.cols, d.cols)
		}
		if q.bad != nil {
			return
		}
		*args[gateArgs](q) = gateArgs{
			env: q.head(), dst: d.view(), q: s.view(), k: t.view(),
			n: int32(d.cols), h: int32(s.cols / d.cols), wide: flag(d.kind == kernels.F32),
		}
		q.launch(kGate, d.rows, ceil(d.cols, threads/32), 0)
	})
}

// Lookup gathers rows side by side.
func (q *queue) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	q.do(opLookup, func() {
		w := q.weight(table, kernels.Rows, "table")
		i := q.of(ids, "ids", kernels.I32, int(dst.Rows), -1)
		d := q.of(dst, "dst", kernels.BF16, 0, i.cols*w.cols)
		*args[lookupArgs](q) = lookupArgs{
			env: q.head(), dst: d.view(), ids: i.view(), table: w.ptr,
			cols: int32(w.cols), tableRows: int32(w.rows), n: int32(i.cols),
		}
		q.launch(kLookup, d.rows, i.cols, 0)
	})
}

// anyLayer resolves a layer handle of any kind.
func (q *queue) anyLayer(l kernels.Layer) (*caches, kernels.LayerSpec) {
	c := q.caches(l.Caches)
	if q.bad == nil && (l.Index < 0 || int(l.Index) >= len(c.spec.Layers)) {
		q.fail("layer %d of %d", l.Index, len(c.spec.Layers))
	}
	if q.bad != nil {
		return nil, kernels.LayerSpec{}
	}
	return c, c.spec.Layers[l.Index]
}

// Grams hashes n-grams along each row's path.
func (q *queue) Grams(dst kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	q.do(opGrams, func() {
		c, g := q.anyLayer(l)
		if q.bad != nil {
			return
		}
		if q.failWith(s.Check(g)); q.bad != nil {
			return
		}
		a := gramsArgs{
			env: q.head(), dst: q.of(dst, "dst", kernels.I32, b.Rows, s.Columns()).view(), b: q.batch(b),
			tokens: c.kv.at(c.layers[l.Index].tokens), table: c.pages.ptr,
			slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages),
			size: int32(s.Size), heads: int32(s.Heads), stop: s.Stop, filler: s.Pad,
		}
		if !s.Map.None() {
			a.ids = q.table(s.Map, "map", 1)
		}
		copy(a.multipliers[:], s.Multipliers)
		copy(a.mod[:], s.Mod)
		copy(a.offset[:], s.Offset)
		*args[gramsArgs](q) = a
		q.launch(kGrams, b.Rows, 1, 0)
	})
}

// maxBlend is MAX_BLEND: the most taps of a convolution of gated values.
const maxBlend = 16

// Blend adds gated values and their convolution over positions to the streams.
func (q *queue) Blend(x, src kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.BlendSpec) {
	q.do(opBlend, func() {
		c, g := q.anyLayer(l)
		if q.bad != nil {
			return
		}
		if q.failWith(s.Check(g)); q.bad != nil {
			return
		}
		h := s.Norm.Group
		n := g.RowDim - h
		taps, norm := q.weight(s.Taps, kernels.Taps, "taps"), q.normEach(s.Norm, n*h, "norm")
		if q.bad == nil && (taps.rows != n*h || taps.cols > maxBlend) {
			q.fail("taps are [%d, %d] for %d columns; at most %d fit", taps.rows, taps.cols, n*h, maxBlend)
		}
		if q.bad == nil && norm.each == 0 && n > 1 {
			q.fail("the norm's weight must have %d elements", n*h)
		}
		*args[blendArgs](q) = blendArgs{
			env: q.head(), x: q.of(x, "x", kernels.BF16, b.Rows, n*h).view(), src: q.of(src, "src", kernels.BF16, b.Rows, g.RowDim).view(),
			b: q.batch(b), rows: c.kv.at(c.layers[l.Index].rows), table: c.pages.ptr, taps: taps.ptr, nw: norm.w, eps: norm.eps,
			n: int32(n), h: int32(h), k: int32(taps.cols), dilation: int32(s.Dilation), centered: norm.centered,
			slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages),
		}
		q.launch(kBlend, b.Rows, n, 0)
	})
}

// SelectBlocks appends the index keys of the rows, then chooses by blocks.
func (q *queue) SelectBlocks(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	q.do(opSelectBlocks, func() {
		c, g := q.layer(l, kernels.Attention)
		if q.bad != nil {
			return
		}
		q.failWith(s.Check(g))
		if s.Heads*s.Dim > maxIndex || s.Dim > maxHead {
			q.fail("%d heads of %d; at most %d channels fit, %d a head", s.Heads, s.Dim, maxIndex, maxHead)
		}
		d := q.of(dst, "dst", kernels.I32, b.Rows, -1)
		qn, kn := q.norm(s.QNorm, s.Dim, "query norm"), q.norm(s.KNorm, s.Dim, "key norm")
		if q.bad == nil && (int(qn.group) != s.Dim || int(kn.group) != s.Dim) {
			q.fail("norms of q and k have groups of %d and %d; a head has %d", qn.group, kn.group, s.Dim)
		}
		a := blocksArgs{
			env: q.head(), dst: d.view(), proj: q.of(proj, "proj", kernels.BF16, b.Rows, (s.Heads+1)*s.Dim).view(), b: q.batch(b),
			keys: c.kv.at(c.layers[l.Index].index), table: c.pages.ptr, qn: qn.w, kn: kn.w, qEps: qn.eps, kEps: kn.eps,
			slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages),
			heads: int32(s.Heads), dim: int32(s.Dim), topK: int32(s.TopK), ratio: int32(s.Ratio), first: int32(s.FirstKey),
			qCentered: qn.centered, kCentered: kn.centered,
		}
		a.dst.rows = int32(d.cols) // words of a row
		if !s.Rope.None() && s.Rotary > 0 {
			r := q.weight(s.Rope, kernels.Table, "rope")
			if q.bad == nil && r.cols != s.Rotary {
				q.fail("%d rotary channels with a table of %d columns", s.Rotary, r.cols)
			}
			a.rope, a.rotary, a.ropeRows = r.ptr, int32(s.Rotary), int32(r.rows)
		}
		*args[blocksArgs](q) = a
		q.launch(kBlocksAppend, b.Rows, 1, 0)
		q.launch(kSelectBlocks, b.Rows, 1, 0)
	})
}
