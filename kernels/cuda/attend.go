//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// maxHead is MAX_HEAD: the widest attention head.
const maxHead = 640

// Attend appends the keys and values of the rows, then attends.
func (q *queue) Attend(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	q.do(opAttend, func() {
		c, g := q.layer(l, kernels.Attention)
		if q.bad != nil {
			return
		}
		if s.KVHeads != g.KVHeads || s.HeadDim != g.HeadDim || s.Values() != g.Values() || s.QHeads <= 0 || s.QHeads%s.KVHeads != 0 {
			q.fail("%d query heads over %d KV heads of %d, values of %d; the cache has %d of %d and %d, and query heads must be a multiple",
				s.QHeads, s.KVHeads, s.HeadDim, s.Values(), g.KVHeads, g.HeadDim, g.Values())
			return
		}
		if s.Gated && s.Values() != s.HeadDim {
			q.fail("gates of %d for values of %d", s.HeadDim, s.Values())
		}
		qCols := s.QHeads * s.HeadDim
		if s.Gated {
			qCols *= 2
		}
		d := q.of(dst, "dst", kernels.BF16, b.Rows, s.QHeads*s.Values())
		p := q.of(proj, "proj", kernels.BF16, b.Rows, qCols+s.KVHeads*(s.HeadDim+s.Values()))
		qn, kn := q.norm(s.QNorm, s.HeadDim, "query norm"), q.norm(s.KNorm, s.HeadDim, "key norm")
		if q.bad == nil && (int(qn.group) != s.HeadDim || int(kn.group) != s.HeadDim) {
			q.fail("norms of q and k have groups of %d and %d; a head has %d", qn.group, kn.group, s.HeadDim)
		}
		if q.bad == nil && s.FirstKey < 0 {
			q.fail("first key %d; it must not be negative", s.FirstKey)
		}
		at := c.layers[l.Index]
		a := attendArgs{
			env: q.head(), dst: d.view(), proj: p.view(), b: q.batch(b),
			keys: c.kv.at(at.keys), values: c.kv.at(at.values), table: c.pages.ptr,
			qn: qn.w, kn: kn.w, scale: s.Scale, qEps: qn.eps, kEps: kn.eps,
			slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages),
			qHeads: int32(s.QHeads), kvHeads: int32(s.KVHeads), dim: int32(s.HeadDim), vdim: int32(s.Values()), gated: flag(s.Gated),
			qCentered: qn.centered, kCentered: kn.centered, first: int32(s.FirstKey),
		}
		if !s.Keys.None() {
			a.chosen = q.of(s.Keys, "keys", kernels.I32, b.Rows, -1).view()
			a.chosen.rows = s.Keys.Cols // words of a row
		}
		if !s.Rope.None() {
			w := q.weight(s.Rope, kernels.Table, "rope")
			if q.bad == nil && (s.Rotary <= 0 || s.Rotary%2 != 0 || s.Rotary > s.HeadDim || w.cols != s.Rotary) {
				q.fail("%d rotary channels of %d with a table of %d columns", s.Rotary, s.HeadDim, w.cols)
			}
			a.rope, a.rotary, a.ropeRows = w.ptr, int32(s.Rotary), int32(w.rows)
		}
		t, tiled := q.tilesOf(s, b, d)
		heads := s.KVHeads
		if tiled {
			heads += s.QHeads
			a.queries, a.stages = 1, int32(t.stages)
			a.parts, a.plan = c.parts.ptr, q.scratch.ptr
			a.tileRows, a.tileDim = int32(t.rows), int32(t.dim)
			a.partFloats = int32(t.rows * (t.dim + 2))
			a.partSlots = int32(c.parts.bytes / 4 / int64(a.partFloats))
		}
		*args[attendArgs](q) = a
		q.launch(kAttendAppend, b.Rows, ceil(heads, threads/32), 0)
		if tiled {
			q.launch(t.kernel, t.blocks*q.be.dev.Multiprocessors, 1, t.shared)
			parts := s.QHeads * ceil(s.HeadDim, foldChannels)
			if b.Rows*parts > foldBlocks {
				parts = s.KVHeads
			}
			q.launch(kAttendFold, b.Rows, parts, 0)
		} else {
			q.launch(kAttend, b.Rows, s.QHeads, 0)
		}
	})
}

// maxIndex is MAX_INDEX: the most channels of all query heads of an index.
const maxIndex = 8192

// Select appends the index keys of the rows, then chooses.
func (q *queue) Select(dst, proj, weights kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	q.do(opSelect, func() {
		c, g := q.layer(l, kernels.Attention)
		if q.bad != nil {
			return
		}
		q.failWith(s.Check(g))
		if s.Heads*s.Dim > maxIndex || s.Dim > maxHead {
			q.fail("%d heads of %d; at most %d channels fit, %d a head", s.Heads, s.Dim, maxIndex, maxHead)
		}
		d := q.of(dst, "dst", kernels.I32, b.Rows, -1)
		p := q.of(proj, "proj", kernels.BF16, b.Rows, (s.Heads+1)*s.Dim)
		w := q.of(weights, "weights", kernels.F32, b.Rows, s.Heads)
		a := selectArgs{
			env: q.head(), dst: d.view(), proj: p.view(), weights: w.view(), b: q.batch(b),
			keys: c.kv.at(c.layers[l.Index].index), table: c.pages.ptr,
			slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages),
			heads: int32(s.Heads), dim: int32(s.Dim), topK: int32(s.TopK), first: int32(s.FirstKey),
		}
		a.dst.rows = int32(d.cols) // words of a row
		if !s.Rope.None() && s.Rotary > 0 {
			r := q.weight(s.Rope, kernels.Table, "rope")
			if q.bad == nil && r.cols != s.Rotary {
				q.fail("%d rotary channels with a table of %d columns", s.Rotary, r.cols)
			}
			a.rope, a.rotary, a.ropeRows = r.ptr, int32(s.Rotary), int32(r.rows)
		}
		*args[selectArgs](q) = a
		q.launch(kSelectAppend, b.Rows, 1, 0)
		q.launch(kSelect, b.Rows, 1, 0)
	})
}
