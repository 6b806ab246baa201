package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// attendRows bounds the rows of scores (positions times query heads of a KV
// head) that are worked on together.
const attendRows = 48

// attendOp is one attention layer over a batch.
type attendOp struct {
	dst, proj    view
	keys         view // mask of the keys of each row; none: all
	c            *caches
	l            *layer
	b            tables
	s            kernels.AttnSpec
	qNorm, kNorm norm
	rope         *weight
	group        int // query heads of a KV head
	qStride      int // columns from one query head to the next
	kCol, vCol   int // first columns of k and v
	block        int // positions worked on together
	partial      int // float32 of a unit of attendSplits; 0: not to be used
}

// Attend records an attention layer.
func (q *queue) Attend(dst, proj kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	const op = "attend"
	if q.off() {
		return
	}
	o := attendOp{b: q.batch(op, b), s: *s}
	o.c, o.l = q.layerOf(op, h, kernels.Attention)
	if q.off() {
		return
	}
	if !q.attendFits(&o) {
		return
	}
	o.dst = q.shaped(op, "dst", dst, kernels.BF16, b.Rows, s.QHeads*s.Values())
	o.proj = q.shaped(op, "proj", proj, kernels.BF16, b.Rows, o.vCol+s.KVHeads*s.Values())
	if !s.Keys.None() {
		o.keys = q.column(op, "keys", s.Keys, b.Rows)
	}
	o.qNorm = q.normOf(op, s.QNorm, s.HeadDim)
	o.kNorm = q.normOf(op, s.KNorm, s.HeadDim)
	if q.off() {
		return
	}
	q.require(needs{worker: attendScratch(&o), shared: o.planSplits(len(q.b.pool.workers))})
	q.list.attends = append(q.list.attends, o)
	q.push(opAttend, false, len(q.list.attends)-1)
}

// attendFits checks the geometry and derives the columns.
func (q *queue) attendFits(o *attendOp) bool {
	s, l := &o.s, o.l.spec
	switch {
	case s.KVHeads != l.KVHeads || s.HeadDim != l.HeadDim || s.Values() != l.Values():
		q.bad("attend: %d KV heads of %d, values of %d; the layer's cache has %d of %d and %d", s.KVHeads, s.HeadDim, s.Values(), l.KVHeads, l.HeadDim, l.Values())
		return false
	case s.Gated && s.Values() != s.HeadDim:
		q.bad("attend: gates of %d for values of %d", s.HeadDim, s.Values())
		return false
	case s.QHeads <= 0 || s.QHeads%s.KVHeads != 0:
		q.bad("attend: %d query heads for %d KV heads; want a multiple", s.QHeads, s.KVHeads)
		return false
	case s.Rotary < 0 || s.Rotary > s.HeadDim || s.Rotary%2 != 0:
		q.bad("attend: %d rotary channels of %d", s.Rotary, s.HeadDim)
		return false
	}
	o.group = s.QHeads / s.KVHeads
	o.qStride = s.HeadDim
	if s.Gated {
		o.qStride *= 2
	}
	o.kCol = s.QHeads * o.qStride
	o.vCol = o.kCol + s.KVHeads*s.HeadDim
	o.block = max(1, attendRows/o.group)
	var ok bool
	o.rope, ok = q.ropeOf("attend", s.Rope, s.Rotary)
	return ok
}

// attend runs this worker's part. Where every worker finds several (span, KV
// head) pairs, or spans are short, a pair is one unit that appends its keys and
// attends to them; else appending and attending are phases of finer units: blocks
// of rows, or, where there are few rows and many keys, splits of the keys.
func (w *worker) attend(o *attendOp) bool {
	load, ok := w.attendCheck(o)
	if !ok {
		return true // the error stops the list at the next barrier
	}
	if w.id == 0 {
		w.work.AttendRows += uint64(load.rows)
	}
	switch {
	case o.splitsPay(load, w.n):
		return w.attendSplits(o)
	case w.n == 1 || load.rows <= 4*w.n || load.pairs >= 4*w.n:
		w.eachPair(o)
		return true
	}
	w.appendPages(o)
	if !w.sync() {
		return false
	}
	w.eachBlock(o)
	return true
}

// attendLoad sums up a batch.
type attendLoad struct {
	rows, pairs int // pairs of a span and a KV head
	splits      int // over all pairs
	longest     int // rows of a span
}

// attendCheck checks all spans and their pages.
func (w *worker) attendCheck(o *attendOp) (load attendLoad, ok bool) {
	w.checkSpans()
	for i := range o.b.spans {
		s, ok := w.span("attend", &o.b, o.c, i)
		if !ok {
			return load, false
		}
		if s.n == 0 {
			continue
		}
		if o.rope != nil && s.top > o.rope.rows {
			w.fail("cpu: attend: span %d reaches position %d, rope table %s has %d", i, s.top-1, o.rope.name, o.rope.rows)
			return load, false
		}
		if !o.keys.none() && s.top > 32*o.keys.cols {
			w.fail("cpu: attend: span %d reaches position %d, the mask of keys has %d", i, s.top-1, 32*o.keys.cols)
			return load, false
		}
		table := o.c.pages[s.slot*o.c.spec.SlotPages:]
		for p := min(o.s.FirstKey, s.start) / page; p <= (s.end()-1)/page; p++ {
			if table[p] < 0 || int(table[p]) >= o.c.spec.Pages {
				w.fail("cpu: attend: span %d: page %d of slot %d is %d; there are %d pages", i, p, s.slot, table[p], o.c.spec.Pages)
				return load, false
			}
		}
		load.rows += s.n
		load.pairs += o.s.KVHeads
		load.splits += o.s.KVHeads * o.splitsOf(s)
		load.longest = max(load.longest, s.n)
	}
	return load, true
}

func (w *worker) eachPair(o *attendOp) {
	heads := o.s.KVHeads
	units := o.b.spans * heads
	for u := w.first(units); u < units; u = w.after(u, units) {
		s, head := o.b.spanOf(u/heads), u%heads
		if s.n == 0 {
			continue
		}
		w.append(o, s, head, 0, s.n)
		for i := 0; i < s.n; i += o.block {
			w.attendBlock(o, s, head, i, min(i+o.block, s.n))
		}
	}
}

// appendPages appends the keys and values of all spans, a page and a KV head at
// a time.
func (w *worker) appendPages(o *attendOp) {
	heads, unit, mine := o.s.KVHeads, 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		for from := 0; from < s.n; {
			to := min(s.n, from+page-(s.start+from)%page)
			for head := range heads {
				if unit == mine {
					w.append(o, s, head, from, to)
					mine = w.claim()
				}
				unit++
			}
			from = to
		}
	}
}

// eachBlock attends block by block of rows.
func (w *worker) eachBlock(o *attendOp) {
	heads, unit, mine := o.s.KVHeads, 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		for from := 0; from < s.n; from += o.block {
			for head := range heads {
				if unit == mine {
					w.attendBlock(o, s, head, from, min(from+o.block, s.n))
					mine = w.claim()
				}
				unit++
			}
		}
	}
}

// pageOf returns the index of a page of a KV head.
func (o *attendOp) pageOf(s span, head, p int) int {
	return int(o.c.pages[s.slot*o.c.spec.SlotPages+p])*o.s.KVHeads + head
}

func (l *layer) keyPage(i int) []uint32 {
	return unsafe.Slice((*uint32)(addBytes(l.base, i*l.keySize*2)), l.keySize/2)
}

func (l *layer) valuePage(i int) []uint16 {
	return unsafe.Slice((*uint16)(addBytes(l.values, i*l.valueSize*2)), l.valueSize)
}

// append writes keys and values of rows [from, to) of a span to their places.
func (w *worker) append(o *attendOp, s span, head, from, to int) {
	taken := w.taken
	d, vd := o.s.HeadDim, o.s.Values()
	wide, key := w.f32(d), w.u16(d)
	for i := from; i < to; i++ {
		place := s.start + i
		in := o.proj.u16(s.row + i)
		w.rotated(o, key, in[o.kCol+head*d:][:d], wide, &o.kNorm, s.pos(&o.b, i))
		at := o.pageOf(s, head, place/page)
		t := place % page
		putKey(o.l.keyPage(at), key, t)
		values := o.l.valuePage(at)
		if o.l.odd[at] && (t == 0 || place == o.s.FirstKey) {
			clear(values)
			o.l.odd[at] = false
		}
		if putValues(values, in[o.vCol+head*vd:][:vd], t) {
			o.l.odd[at] = true
		}
	}
	w.taken = taken
}

// putKey writes a key at place t of a page.
func putKey(keys []uint32, key []uint16, t int) {
	for k := 0; k < len(key); k += 2 {
		keys[k*halfRows+t] = uint32(key[k]) | uint32(key[k+1])<<16
	}
}

// putValues writes a row of values at key t of a page and reports whether one of
// them is not finite.
func putValues(values, v []uint16, t int) (odd bool) {
	const inf = 0x7f80
	for c := 0; c < len(v); c += panelRows {
		part := v[c:min(c+panelRows, len(v))]
		dst := values[c*page+t/2*2*panelRows+t&1:]
		for i, x := range part {
			dst[2*i] = x
			odd = odd || x&inf == inf
		}
	}
	return odd
}

// rotated norms a head, rotates it by its position and rounds it to BF16.
func (w *worker) rotated(o *attendOp, dst, x []uint16, wide []float32, n *norm, pos int) {
	if n.w == nil && o.rope == nil {
		copy(dst, x)
		return
	}
	w.set.FromBF16(wide, x)
	if n.w != nil {
		w.set.ScaleWeight(wide, wide, rsqrtMean(w.set.SumSquaresBF16(x), len(x), n.eps), n.w)
	}
	if o.rope != nil {
		row := o.rope.values[pos*o.s.Rotary:][:o.s.Rotary]
		w.set.RotateHalf(wide[:o.s.Rotary], row[:o.s.Rotary/2], row[o.s.Rotary/2:])
	}
	w.set.ToBF16(dst, wide)
}
