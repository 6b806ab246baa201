package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// selectOp is a Select: an attention over the index keys of a layer that stops at its
// scores.
type selectOp struct {
	attendOp
	weights   view
	topK      int
	positions int // of a slot
}

// allocateIndex makes room for the index keys of a layer, if it has any.
func (c *caches) allocateIndex(l *layer) (err error) {
	if l.spec.IndexDim == 0 {
		return nil
	}
	x := &layer{spec: kernels.LayerSpec{Kind: kernels.Attention, KVHeads: 1, HeadDim: l.spec.IndexDim}, keySize: l.spec.IndexDim * page}
	l.index = x
	if x.mem, err = c.b.mem.alloc(kernels.KV, c.spec.Pages*x.keySize*2); err != nil {
		return err
	}
	x.base, x.odd = x.mem.ptr(), make([]bool, c.spec.Pages)
	x.values = x.base // of no width
	return c.allocateBlocks(l)
}

// Select records the choice of keys.
func (q *queue) Select(dst, proj, weights kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.IndexSpec) {
	const op = "select"
	if q.off() {
		return
	}
	o := selectOp{topK: s.TopK}
	o.b = q.batch(op, b)
	c, l := q.layerOf(op, h, kernels.Attention)
	if q.off() {
		return
	}
	if err := s.Check(l.spec); err != nil {
		q.bad("select: %v", err)
		return
	}
	o.c, o.l, o.positions = c, l.index, c.spec.SlotPages*page
	o.s = kernels.AttnSpec{QHeads: s.Heads, KVHeads: 1, HeadDim: s.Dim, Rotary: s.Rotary, FirstKey: s.FirstKey}
	o.group, o.qStride, o.kCol, o.block = s.Heads, s.Dim, s.Heads*s.Dim, 1
	o.dst = q.column(op, "dst", dst, b.Rows)
	o.proj = q.shaped(op, "proj", proj, kernels.BF16, b.Rows, (s.Heads+1)*s.Dim)
	o.weights = q.shaped(op, "weights", weights, kernels.F32, b.Rows, s.Heads)
	if q.off() {
		return
	}
	var ok bool
	if o.rope, ok = q.ropeOf(op, s.Rope, s.Rotary); !ok {
		return
	}
	o.keys = o.dst // whose width attendCheck looks at
	q.require(needs{worker: scratchBytes(
		[]int{s.Dim, s.Heads * page, o.positions, o.positions}, []int{s.Dim, s.Heads * s.Dim, o.l.keySize})})
	q.list.selects = append(q.list.selects, o)
	q.push(opSelect, false, len(q.list.selects)-1)
}

// selectKeys appends the keys of all rows, then chooses row by row.
func (w *worker) selectKeys(o *selectOp) bool {
	if _, ok := w.attendCheck(&o.attendOp); !ok {
		return w.sync()
	}
	wide, key := w.f32(o.s.HeadDim), w.u16(o.s.HeadDim)
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		lo, hi := w.share(s.n)
		for r := lo; r < hi; r++ {
			place := s.start + r
			w.rotated(&o.attendOp, key, o.proj.u16(s.row + r)[o.kCol:], wide, &o.kNorm, s.pos(&o.b, r))
			putKey(o.l.keyPage(o.pageOf(s, 0, place/page)), key, place%page)
		}
	}
	if !w.sync() {
		return false
	}
	unit, mine := 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		for r := range s.n {
			if unit == mine {
				w.selectRow(o, s, r)
				mine = w.claim()
			}
			unit++
		}
	}
	return true
}

// selectRow scores the keys of a row and writes its mask.
func (w *worker) selectRow(o *selectOp, s span, r int) {
	w.begin()
	set, d := w.set, o.s.HeadDim
	a := attention{o: &o.attendOp, s: s, from: r, rows: o.group}
	a.wide, a.q = w.f32(d), w.u16(o.group*d)
	products, score, spare := w.f32(o.group*page), w.f32(o.positions), w.f32(o.positions)
	if s.tree {
		a.keys = unsafe.Slice((*uint32)(w.take(2*o.l.keySize)), o.l.keySize/2)
	}
	w.queries(&a, r)
	top := s.pos(&o.b, r) + 1
	weights := o.weights.f32(s.row + r)
	for p := o.s.FirstKey / page; p*page < top; p++ {
		panel := (*uint16)(unsafe.Pointer(unsafe.SliceData(a.keyPage(p, a.rows))))
		for h := 0; h < o.group; h += set.MaxM4 {
			set.Gemm(&products[h*page], page, panel, 4, &a.q[h*d], d, min(set.MaxM4, o.group-h), d/2, false)
		}
		y := score[p*page:][:page]
		clear(y)
		for h, weight := range weights {
			x := products[h*page:][:page]
			for i, v := range x {
				if v < 0 {
					x[i] = 0
				}
			}
			set.Axpy(y, x, weight)
		}
	}
	first := min(o.s.FirstKey, top)
	choose(o.dst.i32(s.row+r), score[first:top], spare, first, 1, o.topK)
}

// choose sets the bits of the k largest scores, each of ratio positions from first on:
// of equals the lower, a NaN as minus infinity.
func choose(mask []int32, score, spare []float32, first, ratio, k int) {
	clear(mask)
	set := func(i int) {
		for pos := first + i*ratio; pos < first+(i+1)*ratio; pos++ {
			mask[pos/32] |= 1 << (pos % 32)
		}
	}
	if k >= len(score) {
		for i := range score {
			set(i)
		}
		return
	}
	for i, v := range score {
		if v != v {
			score[i] = float32(math.Inf(-1))
		}
	}
	spare = spare[:len(score)]
	copy(spare, score)
	least, equal := kthLargest(spare, k), k
	for _, v := range score {
		if v > least {
			equal--
		}
	}
	for i, v := range score {
		switch {
		case v > least:
			set(i)
		case v == least && equal > 0:
			set(i)
			equal--
		}
	}
}

// kthLargest returns the k-th largest of x, from 1, and reorders it.
func kthLargest(x []float32, k int) float32 {
	lo, hi := 0, len(x)-1
	for lo < hi {
		pivot := x[lo+(hi-lo)/2]
		i, j := lo, hi
		for i <= j {
			for x[i] > pivot {
				i++
			}
			for x[j] < pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i++
				j--
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return x[k-1]
		}
	}
	return x[lo]
}
