package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// pooledOp is an AttendPooled.
type pooledOp struct {
	c                  *caches
	l, groups          *layer // groups: nil for the window alone
	b                  tables
	dst, q, kv, chosen view
	s                  kernels.PooledSpec
	sink               []float32
	heads              int // of a unit
}

// AttendPooled records attention to a window and groups.
func (q *queue) AttendPooled(dst, query, kv kernels.Buf, h, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	const op = "attend pooled"
	if q.off() {
		return
	}
	o := pooledOp{b: q.batch(op, b), s: *s}
	if o.c, o.l = q.layerOf(op, h, kernels.Pooled); q.off() {
		return
	}
	spec := o.l.spec
	if s.Groups {
		var c *caches
		if c, o.groups = q.layerOf(op, groups, kernels.Pooled); q.off() {
			return
		}
		if spec = o.groups.spec; c != o.c {
			q.bad("attend pooled: window and groups are of two caches")
			return
		}
	}
	if err := s.Check(o.l.spec, spec); err != nil {
		q.bad("attend pooled: %v", err)
		return
	}
	o.dst = q.shaped(op, "dst", dst, kernels.BF16, b.Rows, s.Heads*s.Dim)
	o.q = q.shaped(op, "q", query, kernels.BF16, b.Rows, s.Heads*s.Dim)
	o.kv = q.shaped(op, "kv", kv, kernels.BF16, b.Rows, s.Dim)
	if !s.Chosen.None() {
		o.chosen = q.column(op, "chosen", s.Chosen, b.Rows)
	}
	if !s.Sink.None() {
		w := q.weightOf(op, s.Sink, kernels.Vector)
		if w == nil {
			return
		}
		if o.sink = w.values; len(o.sink) != s.Heads {
			q.bad("attend pooled: sink %s has %d elements; there are %d heads", w.name, len(o.sink), s.Heads)
		}
	}
	if q.off() {
		return
	}
	// Few rows are shared out by heads too: each head is its own chain.
	if o.heads = s.Heads; b.Rows < 4*len(q.b.pool.workers) {
		o.heads = max(8, (s.Heads+len(q.b.pool.workers)-1)/len(q.b.pool.workers))
	}
	q.require(needs{worker: o.scratch()})
	q.list.pooled = append(q.list.pooled, o)
	q.push(opAttendPooled, false, len(q.list.pooled)-1)
}

// widths returns the heads of a unit and the channels of a head in whole panels.
func (o *pooledOp) widths() (heads, channels int) {
	return roundUp(o.heads, panelRows), roundUp(o.s.Dim, panelRows)
}

func (o *pooledOp) scratch() int {
	heads, channels := o.widths()
	d := o.s.Dim
	return scratchBytes([]int{split * panelRows, o.heads * split, o.heads * channels, o.heads * channels, o.heads, o.heads, o.heads, o.heads},
		[]int{heads * d, split * d, split * panelRows, o.heads * split})
}

// attendPooled attends row by row, and then keeps the rows' keys.
func (w *worker) attendPooled(o *pooledOp) bool {
	layer := o.l
	if o.groups != nil {
		layer = o.groups
	}
	if !w.pooledCheck("attend pooled", &o.b, o.c, layer) {
		return w.sync()
	}
	parts := (o.s.Heads + o.heads - 1) / o.heads
	unit, mine := 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		if w.id == 0 {
			w.work.AttendRows += uint64(s.n)
		}
		for u := range s.n * parts {
			if unit == mine {
				from := u % parts * o.heads
				w.pooledRow(o, s, u/parts, from, min(from+o.heads, o.s.Heads))
				mine = w.claim()
			}
			unit++
		}
	}
	if !w.sync() {
		return false
	}
	if o.s.Block {
		return true
	}
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		w.keepRows(o.c, &o.l.pool.keys, s, o.l.pool.slotAt(s.slot), 0, &o.kv)
	}
	return true
}

// pooledUnit is the work of heads [from, from+heads) of one row, split by split of the
// keys that the row sees, in their order.
type pooledUnit struct {
	o                          *pooledOp
	s                          span
	r, from, heads, channels   int
	panel                      []uint16 // queries
	keys, values               []uint16 // of a split: as they are, and a panel of them by channel
	p                          []uint16 // probabilities
	raw                        []float32
	scores, part, out          []float32
	top, sum, topPart, sumPart []float32
	n, visited                 int // keys of the split under way; of all
}

// pooledRow computes heads [from, to) of row r of a span.
func (w *worker) pooledRow(o *pooledOp, s span, r, from, to int) {
	w.begin()
	d := o.s.Dim
	_, channels := o.widths()
	a := pooledUnit{o: o, s: s, r: r, from: from, heads: to - from, channels: channels}
	a.raw, a.scores = w.f32(split*panelRows), w.f32(o.heads*split)
	a.part, a.out = w.f32(o.heads*channels), w.f32(o.heads*channels)
	a.top, a.sum, a.topPart, a.sumPart = w.f32(o.heads), w.f32(o.heads), w.f32(o.heads), w.f32(o.heads)
	a.panel = w.queryPanels(o.q.u16(s.row + r)[from*d:], a.heads, d)
	a.keys, a.values, a.p = w.u16(split*d), w.u16(split*panelRows), w.u16(o.heads*split)
	clear(a.out)
	for h := range a.heads {
		a.top[h], a.sum[h] = float32(math.Inf(-1)), 0
		if o.sink != nil {
			a.top[h], a.sum[h] = o.sink[from+h], 1
		}
	}
	w.seenKeys(&a)
	if a.n > 0 {
		w.pooledSplit(&a, a.n)
	}
	if from == 0 {
		w.work.KVTokens += uint64(a.visited)
	}
	dst := o.dst.u16(s.row + r)[from*d:]
	for h := range a.heads {
		out := a.out[h*channels:][:d]
		if a.sum[h] > 0 { // else the row sees no key
			w.set.Scale(out, out, 1/a.sum[h])
		}
		w.set.ToBF16(dst[h*d:][:d], out)
	}
}

// seenKeys takes the keys that the row sees: the window's in order of position, then
// the groups'.
func (w *worker) seenKeys(a *pooledUnit) {
	o, s := a.o, &a.s
	pos := s.pos(&o.b, a.r)
	from, to := pos-o.l.spec.Window+1, pos
	if o.s.Block {
		from, to = s.start-o.l.spec.Window, s.end()-1
	}
	for p := max(o.s.FirstKey, from); p <= to; p++ {
		switch {
		case p < s.start:
			w.seenKey(a, o.l.key(s.slot, p))
		case s.tree:
			w.seenKey(a, o.kv.u16(s.row+s.ancestor(&o.b, a.r, p)))
		default:
			w.seenKey(a, o.kv.u16(s.row+p-s.start))
		}
	}
	if o.groups == nil {
		return
	}
	for g := range o.groups.spec.Groups(pos + 1) {
		if o.chosen.none() || g < 32*o.chosen.cols && has(o.chosen.i32(s.row+a.r), g) {
			w.seenKey(a, o.c.seenGroup(o.groups, s, &o.b, a.r, g)[:o.s.Dim])
		}
	}
}

// seenKey takes a key, and computes the split that it fills.
func (w *worker) seenKey(a *pooledUnit, key []uint16) {
	copy(a.keys[a.n*a.o.s.Dim:], key)
	a.visited++
	if a.n++; a.n == split {
		w.pooledSplit(a, a.n)
		a.n = 0
	}
}

// pooledSplit adds what n keys contribute.
func (w *worker) pooledSplit(a *pooledUnit, n int) {
	set, d := w.set, a.o.s.Dim
	for h := 0; h < a.heads; h += panelRows {
		set.Gemm(&a.raw[0], panelRows, &a.panel[h*d], 4, &a.keys[0], d, n, d/2, false)
		for j := range min(panelRows, a.heads-h) {
			row := a.scores[(h+j)*split:]
			for k := range n {
				row[k] = a.raw[k*panelRows+j]
			}
		}
	}
	even := (n + 1) / 2 * 2
	for h := range a.heads {
		x := a.scores[h*split:][:n]
		set.Scale(x, x, a.o.s.Scale)
		a.topPart[h] = set.Max(x)
		a.sumPart[h] = set.ExpSub(x, x, a.topPart[h])
		p := a.p[h*split:][:even]
		p[even-1] = 0
		set.ToBF16(p[:n], x)
	}
	clear(a.keys[n*d : even*d])
	for c := 0; c < d; c += panelRows {
		a.packValues(c, even)
		set.Gemm(&a.part[c], a.channels, &a.values[0], 4, &a.p[0], split, a.heads, even/2, false)
	}
	for h := range a.heads {
		a.merge(w, h)
	}
}

// packValues packs channels from c on of n keys, an even number, as the rows of a
// panel.
func (a *pooledUnit) packValues(c, n int) {
	d := a.o.s.Dim
	wide := min(panelRows, d-c)
	to := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(a.values))), n/2*panelRows)
	for i := 0; i < n; i += 2 {
		x, y, out := a.keys[i*d+c:][:wide], a.keys[(i+1)*d+c:][:wide], to[i/2*panelRows:][:panelRows]
		for j, v := range x {
			out[j] = uint32(v) | uint32(y[j])<<16
		}
		clear(out[wide:])
	}
}

// merge adds a split to what head h has so far.
func (a *pooledUnit) merge(w *worker, h int) {
	out, part := a.out[h*a.channels:][:a.channels], a.part[h*a.channels:][:a.channels]
	top := max(a.top[h], a.topPart[h])
	old, add := vec.Exp32(a.top[h]-top), vec.Exp32(a.topPart[h]-top)
	w.set.Scale(out, out, old)
	w.set.Axpy(out, part, add)
	a.sum[h] = float32(a.sum[h]*old) + float32(a.sumPart[h]*add)
	a.top[h] = top
}
