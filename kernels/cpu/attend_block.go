package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels/cpu/vec"
)

// attention is the state of one block of rows while it goes through the splits
// of its keys. Row r is position r/group of the block, query head r%group.
type attention struct {
	o     *attendOp
	s     span
	head  int
	from  int // the block's first row
	rows  int // positions times group
	width int // columns of out: whole panels

	q, p     []uint16  // queries; probabilities of a split
	scores   []float32 // of a split
	part     []float32 // weighted values of a split
	out      []float32 // weighted values so far
	top, sum []float32 // per row, so far; a negative sum: no key yet
	topPart  []float32 // per row, of a split
	sumPart  []float32 // negative: no key in the split
	wide     []float32

	// Of a tree: copies of a page of keys and values with a row's path in the
	// places of its positions.
	keys   []uint32
	values []uint16
}

// posOf returns the position of row r.
func (a *attention) posOf(r int) int { return a.s.pos(&a.o.b, a.from+r/a.o.group) }

// reach returns the position after the last one of the block.
func (a *attention) reach() int {
	if !a.s.tree {
		return a.posOf(a.rows-1) + 1
	}
	top := 0
	for r := 0; r < a.rows; r += a.o.group {
		top = max(top, a.posOf(r)+1)
	}
	return top
}

// attendScratch is what attendBlock and append take.
func attendScratch(o *attendOp) int {
	m, d, width := o.block*o.group, o.s.HeadDim, o.l.panels*panelRows
	return scratchBytes([]int{m * split, m * width, m * width, m, m, m, m, max(width, d), d},
		[]int{m * d, m * split, width * page, d, o.l.keySize, o.l.valueSize})
}

// newAttention takes the scratch memory for rows [from, to) of a span and one KV
// head.
func (w *worker) newAttention(o *attendOp, s span, head, from, to int) attention {
	a := attention{o: o, s: s, head: head, from: from, rows: (to - from) * o.group, width: o.l.panels * panelRows}
	m, d := o.block*o.group, o.s.HeadDim
	a.scores, a.part, a.out = w.f32(m*split), w.f32(m*a.width), w.f32(m*a.width)
	a.top, a.sum, a.topPart, a.sumPart = w.f32(m), w.f32(m), w.f32(m), w.f32(m)
	a.wide = w.f32(max(a.width, d))
	a.q, a.p = w.u16(m*d), w.u16(m*split)
	if s.tree {
		a.keys = unsafe.Slice((*uint32)(w.take(2*o.l.keySize)), o.l.keySize/2)
		a.values = w.u16(o.l.valueSize)
	}
	for r := range a.rows {
		a.sum[r] = -1
	}
	return a
}

// queries norms and rotates the queries of the block.
func (w *worker) queries(a *attention, from int) {
	o, d := a.o, a.o.s.HeadDim
	for r := range a.rows {
		i, h := from+r/o.group, a.head*o.group+r%o.group
		w.rotated(o, a.q[r*d:][:d], o.proj.u16(a.s.row + i)[h*o.qStride:][:d], a.wide[:d], &o.qNorm, a.s.pos(&o.b, i))
	}
}

// attendBlock attends from rows [from, to) of a span and one KV head.
func (w *worker) attendBlock(o *attendOp, s span, head, from, to int) {
	taken := w.taken
	a := w.newAttention(o, s, head, from, to)
	w.queries(&a, from)
	top := a.reach()
	for k := o.s.FirstKey / split * split; k < top; k += split {
		w.attendSplit(&a, k, min(top-k, split))
		for r := range a.rows {
			w.merge(&a, r)
		}
	}
	for r := range a.rows {
		w.attendStore(&a, r, from)
	}
	w.taken = taken
}

// attendSplit computes what the keys [k0, k0+n) of a split contribute: part,
// topPart and sumPart. Pages of which no row has chosen a key are passed over: all
// their weights would be zero.
func (w *worker) attendSplit(a *attention, k0, n int) {
	o, set, d := a.o, w.set, a.o.s.HeadDim
	first, looked := max(0, o.s.FirstKey-k0)/page*page, false
	for at := first; at < n; at += page {
		if !a.looksAt((k0 + at) / page) {
			continue
		}
		looked = true
		for r0 := 0; r0 < a.rows; {
			r1 := a.alike(r0, (k0+at)/page)
			panel := (*uint16)(unsafe.Pointer(unsafe.SliceData(a.keyPage((k0+at)/page, r1))))
			vecs, tile := 4, set.MaxM4
			if n-at <= halfRows {
				vecs, tile = 2, set.MaxM2
			}
			for r := r0; r < r1; r += tile {
				set.Gemm(&a.scores[r*split+at], split, panel, vecs, &a.q[r*d], d, min(tile, r1-r), d/2, false)
			}
			r0 = r1
		}
	}
	if !looked {
		for r := range a.rows {
			a.sumPart[r] = -1
		}
		return
	}
	for r := range a.rows {
		w.softmax(a, r, k0, n)
	}
	for at, load := first, false; at < n; at += page {
		if a.looksAt((k0 + at) / page) {
			w.addValues(a, k0, at, min(page, n-at), load)
			load = true
		}
	}
}

// looksAt reports whether a row may have chosen a key of page p.
func (a *attention) looksAt(p int) bool {
	if a.o.keys.none() {
		return true
	}
	const words = page / 32
	for i := 0; i < a.rows/a.o.group; i++ {
		mask := a.o.keys.i32(a.s.row + a.from + i)
		for _, w := range mask[min(p*words, len(mask)):min((p+1)*words, len(mask))] {
			if w != 0 {
				return true
			}
		}
	}
	return false
}

// sees returns the keys of the split [k0, k0+n) that row r sees, relative to k0.
func (a *attention) sees(r, k0, n int) (lo, hi int) {
	return max(0, a.o.s.FirstKey-k0), min(n, a.posOf(r)+1-k0)
}

// softmax turns row r's scores of a split into probabilities relative to the
// split's own maximum, rounded to BF16, with zeros for the keys that the row
// does not see.
func (w *worker) softmax(a *attention, r, k0, n int) {
	set := w.set
	p := a.p[r*split:][:(n+1)/2*2]
	lo, hi := a.sees(r, k0, n)
	if lo >= hi {
		clear(p)
		a.sumPart[r] = -1
		return
	}
	x := a.scores[r*split:][lo:hi]
	set.Scale(x, x, a.o.s.Scale)
	if !a.o.keys.none() {
		a.mask(r, k0+lo, x)
	}
	a.topPart[r] = set.Max(x)
	if !a.o.keys.none() && math.IsInf(float64(a.topPart[r]), -1) {
		clear(p)
		a.sumPart[r] = -1
		return
	}
	a.sumPart[r] = set.ExpSub(x, x, a.topPart[r])
	clear(p[:lo])
	set.ToBF16(p[lo:hi], x)
	clear(p[hi:])
	if a.head == 0 && r%a.o.group == 0 {
		w.work.KVTokens += uint64(hi - lo)
	}
}

// chosen reports whether row r's mask, if there is one, has a position.
func (a *attention) chosen(r, pos int) bool {
	return a.o.keys.none() || has(a.o.keys.i32(a.s.row+a.from+r/a.o.group), pos)
}

func has(mask []int32, pos int) bool { return mask[pos/32]>>(pos%32)&1 != 0 }

// mask makes the scores of keys that row r did not choose minus infinity; x begins at
// a position.
func (a *attention) mask(r, pos int, x []float32) {
	mask := a.o.keys.i32(a.s.row + a.from + r/a.o.group)
	for i := range x {
		if !has(mask, pos+i) {
			x[i] = float32(math.Inf(-1))
		}
	}
}

// addValues continues the weighted sums with keys [at, at+n) of the split, which
// are those of one page.
func (w *worker) addValues(a *attention, k0, at, n int, load bool) {
	for r0 := 0; r0 < a.rows; {
		r1 := a.alike(r0, (k0+at)/page)
		values, odd := a.valuePage((k0+at)/page, r1)
		if odd {
			w.addOddValues(a, values, r0, r1, k0, at, n, load)
		} else {
			w.weigh(a, values, r0, r1, at, (n+1)/2, load)
		}
		r0 = r1
	}
}

// weigh multiplies the probabilities of rows [r0, r1) by a page of values.
func (w *worker) weigh(a *attention, values []uint16, r0, r1, at, k2 int, load bool) {
	set := w.set
	for c := 0; c < a.o.s.Values(); c += panelRows {
		vecs, tile := 4, set.MaxM4
		if a.o.s.Values()-c <= halfRows {
			vecs, tile = 2, set.MaxM2
		}
		for r := r0; r < r1; r += tile {
			set.Gemm(&a.part[r*a.width+c], a.width, &values[c*page], vecs, &a.p[r*split+at], split, min(tile, r1-r), k2, load)
		}
	}
}

// addOddValues is addValues for a page that holds an infinity or a NaN: each
// position works with a copy in which the keys that it does not see are zero.
func (w *worker) addOddValues(a *attention, src []uint16, r0, r1, k0, at, n int, load bool) {
	values := w.u16(len(src))
	for r := r0; r < r1; r += a.o.group {
		lo, hi := a.sees(r, k0, at+n)
		copy(values, src)
		for t := range page {
			if at+t < lo || at+t >= hi || !a.chosen(r, k0+at+t) {
				clearKey(values, t)
			}
		}
		w.weigh(a, values, r, r+a.o.group, at, (n+1)/2, load)
	}
	w.taken -= roundUp(2*len(src), lineBytes)
}

// clearKey sets key t of a page of values to zero.
func clearKey(values []uint16, t int) {
	for c := 0; c < len(values); c += panelRows * page {
		key := values[c+t/2*2*panelRows+t&1:]
		for i := range panelRows {
			key[2*i] = 0
		}
	}
}

// merge adds the split to row r's running state.
func (w *worker) merge(a *attention, r int) {
	if a.sumPart[r] < 0 {
		return
	}
	out, part := a.out[r*a.width:][:a.width], a.part[r*a.width:][:a.width]
	d := a.o.s.Values()
	if a.sum[r] < 0 {
		copy(out[:d], part)
		a.sum[r], a.top[r] = a.sumPart[r], a.topPart[r]
		return
	}
	top := max(a.top[r], a.topPart[r])
	old, now := vec.Exp32(a.top[r]-top), vec.Exp32(a.topPart[r]-top)
	w.set.Scale(out[:d], out[:d], old)
	w.set.Axpy(out[:d], part[:d], now)
	a.sum[r] = float32(a.sum[r]*old) + float32(a.sumPart[r]*now)
	a.top[r] = top
}

// attendStore divides by the sum, applies the gate and rounds row r into dst. A
// row that sees no key gives zeros.
func (w *worker) attendStore(a *attention, r, from int) {
	o, d := a.o, a.o.s.Values()
	i, h := a.s.row+from+r/o.group, a.head*o.group+r%o.group
	out, dst := a.out[r*a.width:][:d], o.dst.u16(i)[h*d:][:d]
	if a.sum[r] < 0 {
		clear(dst)
		return
	}
	zero := a.wide[:d]
	clear(zero)
	w.set.Scale(out, out, 1/a.sum[r])
	w.set.Add(out, zero) // the sign of a zero may come from keys not seen
	if o.s.Gated {
		w.set.MulSigmoidBF16(dst, out, o.proj.u16(i)[h*o.qStride+d:][:d])
	} else {
		w.set.ToBF16(dst, out)
	}
}
