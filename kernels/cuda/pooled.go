//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Argument structs of hyper.cu and pooled.cu.

type hyperArgs struct {
	env
	dst, x                  view
	fn, base, scale         driver.Ptr
	normEps, eps            float32
	streams, iters, cols, n int32
}

type gateUpArgs struct {
	env
	dst, x view
	limit  float32
	cols   int32
}

type rotateArgs struct {
	env
	dst, src                                                  view
	pos, span                                                 view
	rope                                                      driver.Ptr
	eps                                                       float32
	heads, dim, rotary, ropeRows, inverse, unit, ratio, round int32
	_                                                         int32
}

// ringPlace is Ring.
type ringPlace struct {
	rows, spare, tags uint64
	n, line           int32
}

// pooledLayer is PooledLayer.
type pooledLayer struct {
	groups, pending             uint64
	keys, raw                   ringPlace
	dim, cols, rawCols, perPage int32
	window, ratio, reach, _     int32
}

// pooledCache is PooledCache.
type pooledCache struct {
	rings                             driver.Ptr
	slotBytes                         uint64
	kv, table                         driver.Ptr
	slots, slotPages, pages, maxDraft int32
}

type poolArgs struct {
	env
	dst, proj     view
	b             batchArgs
	c             pooledCache
	l             pooledLayer
	bias          driver.Ptr
	at, dim, n, _ int32
}

type keepArgs struct {
	env
	src     view
	b       batchArgs
	c       pooledCache
	l       pooledLayer
	at, dim int32
}

type chooseArgs struct {
	env
	dst, within, best       view
	q, weights              view
	b                       batchArgs
	c                       pooledCache
	l                       pooledLayer
	heads, dim, topK, words int32
	blocks, block, _, _     int32
}

type pooledArgs struct {
	env
	dst, q, kv                       view
	chosen                           view
	b                                batchArgs
	c                                pooledCache
	l, g                             pooledLayer
	sink                             driver.Ptr
	scale                            float32
	heads, dim, first, words, groups int32
	block                            int32
}

type pooledCommitArgs struct {
	env
	b          batchArgs
	kept, path view
	c          pooledCache
	layers     driver.Ptr
}

type ringCopyArgs struct {
	env
	length, saved         driver.Ptr
	slot, snap            driver.Ptr
	words                 uint64
	to, restore, index, _ int32
}

// place lays out a Pooled layer: groups in kv, which grows by what take gives, rings
// behind the bytes that a slot has so far.
func (z *cacheSizes) place(l kernels.LayerSpec, spec kernels.CacheSpec, groups int64) pooledLayer {
	at := func(n int64) uint64 {
		from := z.rings
		z.rings += (n + 15) / 16 * 16
		return uint64(from)
	}
	ring := func(n, line int) ringPlace {
		all := int64(n) * int64(line)
		return ringPlace{rows: at(all), spare: at(all), tags: at(4 * int64(n)), n: int32(n), line: int32(line)}
	}
	window, raw := l.Rings(spec.MaxDraft)
	p := pooledLayer{
		groups: uint64(groups) / 2, keys: ring(window, 2*l.HeadDim), raw: ring(raw, 4*l.PoolCols()),
		dim: int32(l.HeadDim), cols: int32(l.HeadDim + l.IndexDim), rawCols: int32(l.PoolCols()), perPage: int32(l.PageGroups()),
		window: int32(l.Window), ratio: int32(l.Ratio), reach: int32(l.Reach()),
	}
	if l.Ratio > 0 {
		p.pending = at(2 * int64(spec.MaxDraft+1) * int64(p.cols))
	}
	return p
}

// maxPooled is MAX_POOLED: the widest head of pooled attention.
const maxPooled = 1024

// pooledCache returns the memory that kernels see.
func (c *caches) pooledCache() pooledCache {
	return pooledCache{
		rings: c.rings.ptr, slotBytes: uint64(c.sizes.rings), kv: c.kv.ptr, table: c.pages.ptr,
		slots: int32(c.spec.Slots), slotPages: int32(c.spec.SlotPages), pages: int32(c.spec.Pages), maxDraft: int32(c.spec.MaxDraft),
	}
}

// copyRings copies the rings of all layers between a slot and a snapshot.
func (q *queue) copyRings(c *caches, slot, snapshot, length int, restore bool) {
	if c.sizes.rings == 0 {
		return
	}
	*args[ringCopyArgs](q) = ringCopyArgs{
		env: q.head(), length: c.lengthAt(slot), saved: c.saved.at(4 * int64(snapshot)),
		slot: c.rings.at(int64(slot) * c.sizes.rings), snap: c.ringSnaps.at(int64(snapshot) * c.sizes.rings),
		words: uint64(c.sizes.rings / 4), to: int32(length), restore: flag(restore), index: int32(slot),
	}
	q.launch(kRingCopy, copyBlocks, 1, 0)
}

// commitRings moves the rows of paths in the rings, and the groups that they complete.
func (q *queue) commitRings(c *caches, b *kernels.Batch, kept, path view) {
	if n := len(c.sizes.pooled); n > 0 {
		*args[pooledCommitArgs](q) = pooledCommitArgs{env: q.head(), b: q.batch(b), kept: kept, path: path, c: c.pooledCache(), layers: c.pooled.ptr}
		q.launch(kPooledCommit, n, b.Spans, 0)
	}
}

// Hyper computes the coefficients of streams.
func (q *queue) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	q.do(opHyper, func() {
		d := q.of(dst, "dst", kernels.F32, 0, s.Cols())
		in := q.of(x, "x", kernels.BF16, d.rows, -1)
		fn := q.weight(s.Fn, kernels.Table, "fn")
		if q.bad == nil {
			q.failWith(s.Check(in.cols))
		}
		if q.bad == nil && (fn.rows != s.Cols() || fn.cols != in.cols) {
			q.fail("fn is [%d, %d]; it must be [%d, %d]", fn.rows, fn.cols, s.Cols(), in.cols)
		}
		*args[hyperArgs](q) = hyperArgs{
			env: q.head(), dst: d.view(), x: in.view(), fn: fn.ptr,
			base: q.vector(s.Base, s.Cols(), "base"), scale: q.vector(s.Scale, s.Scales(), "scale"),
			normEps: s.NormEps, eps: s.Eps, streams: int32(s.Streams), iters: int32(s.Iters), cols: int32(in.cols), n: int32(s.Cols()),
		}
		q.launch(kHyper, d.rows, 1, 0)
	})
}

// GateUp is a SwiGLU with a limit.
func (q *queue) GateUp(dst, x kernels.Buf, limit float32) {
	q.do(opGateUp, func() {
		d := q.of(dst, "dst", kernels.BF16, 0, -1)
		in := q.of(x, "x", kernels.F32, d.rows, 2*d.cols)
		*args[gateUpArgs](q) = gateUpArgs{env: q.head(), dst: d.view(), x: in.view(), limit: limit, cols: int32(d.cols)}
		q.launch(kGateUp, d.rows, 1, 0)
	})
}

// Rotate norms, rotates and rounds heads.
func (q *queue) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	q.do(opRotate, func() {
		q.failWith(s.Check())
		if q.bad != nil {
			return
		}
		t := q.batch(b)
		d := q.of(dst, "dst", kernels.BF16, b.Rows, s.Heads*s.Dim)
		in := q.of(src, "src", kernels.BF16, b.Rows, s.Heads*s.Dim)
		rope := q.weight(s.Rope, kernels.Table, "rope")
		if q.bad == nil && rope.cols != s.Rotary {
			q.fail("%d rotary channels with a table of %d columns", s.Rotary, rope.cols)
		}
		*args[rotateArgs](q) = rotateArgs{
			env: q.head(), dst: d.view(), src: in.view(), pos: t.pos, span: t.span, rope: rope.ptr, eps: s.Eps,
			heads: int32(s.Heads), dim: int32(s.Dim), rotary: int32(s.Rotary), ropeRows: int32(rope.rows),
			inverse: flag(s.Inverse), unit: flag(s.Unit), ratio: int32(s.Ratio), round: int32(s.Round),
		}
		q.launch(kRotate, b.Rows, 1, 0)
	})
}

// Pool pools the keys of groups.
func (q *queue) Pool(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	q.do(opPool, func() {
		c, g := q.layer(l, kernels.Pooled)
		if q.bad == nil {
			q.failWith(s.Check(g))
		}
		if q.bad != nil {
			return
		}
		n, dim := g.Reach()/g.Ratio, s.Dim(g)
		a := poolArgs{
			env: q.head(), dst: q.of(dst, "dst", kernels.BF16, b.Rows, dim).view(), proj: q.of(proj, "proj", kernels.F32, b.Rows, 2*n*dim).view(),
			b: q.batch(b), c: c.pooledCache(), l: c.sizes.pooled[c.layers[l.Index].pooled], dim: int32(dim), n: int32(n),
		}
		if s.Index {
			a.at = int32(2 * n * g.HeadDim)
		}
		if !s.Bias.None() {
			w := q.weight(s.Bias, kernels.Table, "bias")
			if q.bad == nil && (w.rows != g.Ratio || w.cols != n*dim) {
				q.fail("bias is [%d, %d]; it must be [%d, %d]", w.rows, w.cols, g.Ratio, n*dim)
			}
			a.bias = w.ptr
		}
		*args[poolArgs](q) = a
		q.launch(kPool, b.Rows, 1, 0)
		q.launch(kPoolKeep, b.Rows, 1, 0)
	})
}

// Keep stores the keys of groups.
func (q *queue) Keep(src kernels.Buf, l kernels.Layer, b *kernels.Batch, index bool) {
	q.do(opKeep, func() {
		c, g := q.layer(l, kernels.Pooled)
		if q.bad != nil {
			return
		}
		a := keepArgs{env: q.head(), b: q.batch(b), c: c.pooledCache(), l: c.sizes.pooled[c.layers[l.Index].pooled], dim: int32(g.HeadDim)}
		if index {
			a.at, a.dim = int32(g.HeadDim), int32(g.IndexDim)
		}
		if g.Ratio == 0 || a.dim == 0 {
			q.fail("the layer has groups of %d, index keys of %d", g.Ratio, g.IndexDim)
		}
		a.src = q.of(src, "src", kernels.BF16, b.Rows, int(a.dim)).view()
		*args[keepArgs](q) = a
		q.launch(kKeep, b.Rows, 1, 0)
	})
}

// Choose chooses groups by their index keys.
func (q *queue) Choose(dst, query, weights kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	q.do(opChoose, func() {
		c, g := q.layer(l, kernels.Pooled)
		if q.bad == nil {
			q.failWith(s.Check(g))
		}
		if q.bad != nil {
			return
		}
		d := q.of(dst, "dst", kernels.I32, b.Rows, -1)
		a := chooseArgs{
			env: q.head(), dst: d.view(), q: q.of(query, "q", kernels.BF16, b.Rows, s.Heads*s.Dim).view(),
			weights: q.of(weights, "weights", kernels.F32, b.Rows, s.Heads).view(), b: q.batch(b),
			c: c.pooledCache(), l: c.sizes.pooled[c.layers[l.Index].pooled],
			heads: int32(s.Heads), dim: int32(s.Dim), topK: int32(s.TopK), words: int32(d.cols), blocks: int32(s.BestBlocks), block: int32(s.BlockSize),
		}
		if !s.Within.None() {
			a.within = q.of(s.Within, "within", kernels.I32, b.Rows, d.cols).view()
		}
		if !s.Best.None() {
			a.best = q.of(s.Best, "best", kernels.I32, b.Rows, d.cols).view()
		}
		*args[chooseArgs](q) = a
		q.launch(kChoose, b.Rows, 1, 0)
	})
}

// AttendPooled attends to a window and groups, then keeps the rows' keys.
func (q *queue) AttendPooled(dst, query, kv kernels.Buf, l, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	q.do(opAttendPooled, func() {
		c, g := q.layer(l, kernels.Pooled)
		if q.bad != nil {
			return
		}
		of, other := g, c
		if s.Groups {
			if other, of = q.layer(groups, kernels.Pooled); q.bad == nil && other != c {
				q.fail("window and groups are of two caches")
			}
		}
		if q.bad == nil {
			q.failWith(s.Check(g, of))
		}
		if q.bad == nil && s.Dim > maxPooled {
			q.fail("heads of %d; at most %d", s.Dim, maxPooled)
		}
		if q.bad != nil {
			return
		}
		a := pooledArgs{
			env: q.head(), dst: q.of(dst, "dst", kernels.BF16, b.Rows, s.Heads*s.Dim).view(),
			q: q.of(query, "q", kernels.BF16, b.Rows, s.Heads*s.Dim).view(), kv: q.of(kv, "kv", kernels.BF16, b.Rows, s.Dim).view(),
			b: q.batch(b), c: c.pooledCache(), l: c.sizes.pooled[c.layers[l.Index].pooled],
			scale: s.Scale, heads: int32(s.Heads), dim: int32(s.Dim), first: int32(s.FirstKey), groups: flag(s.Groups), block: flag(s.Block),
		}
		if s.Groups {
			a.g = c.sizes.pooled[c.layers[groups.Index].pooled]
		}
		if !s.Sink.None() {
			a.sink = q.vector(s.Sink, s.Heads, "sink")
		}
		if !s.Chosen.None() {
			m := q.of(s.Chosen, "chosen", kernels.I32, b.Rows, -1)
			a.chosen, a.words = m.view(), int32(m.cols)
		}
		*args[pooledArgs](q) = a
		q.launch(kAttendPooled, b.Rows, s.Heads, 0)
		if !s.Block {
			q.launch(kPooledKeep, b.Rows, 1, 0)
		}
	})
}

// pooledLayouts are the sizes that hyper.cu and pooled.cu assert.
var pooledLayouts = []layout{
	{"hyper", unsafe.Sizeof(hyperArgs{})},
	{"gate_up", unsafe.Sizeof(gateUpArgs{})},
	{"rotate", unsafe.Sizeof(rotateArgs{})},
	{"pool", unsafe.Sizeof(poolArgs{})},
	{"keep", unsafe.Sizeof(keepArgs{})},
	{"choose", unsafe.Sizeof(chooseArgs{})},
	{"pooled", unsafe.Sizeof(pooledArgs{})},
	{"pooled_commit", unsafe.Sizeof(pooledCommitArgs{})},
	{"ring_copy", unsafe.Sizeof(ringCopyArgs{})},
}

// checkPooled validates a Pooled layer.
func checkPooled(i int, l kernels.LayerSpec) error {
	if err := l.CheckPooled(); err != nil {
		return fmt.Errorf("caches: layer %d: %w", i, err)
	}
	if l.HeadDim > maxPooled {
		return fmt.Errorf("caches: layer %d: keys of %d; at most %d", i, l.HeadDim, maxPooled)
	}
	return nil
}
