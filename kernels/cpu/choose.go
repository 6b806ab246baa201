package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// chooseOp is a Choose.
type chooseOp struct {
	c                             *caches
	l                             *layer
	b                             tables
	dst, q, weights, within, best view
	s                             kernels.ChooseSpec
	groups                        int // of a slot
}

// Choose records the choice of groups.
func (q *queue) Choose(dst, query, weights kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.ChooseSpec) {
	const op = "choose"
	if q.off() {
		return
	}
	o := chooseOp{b: q.batch(op, b), s: *s}
	if o.c, o.l = q.layerOf(op, h, kernels.Pooled); q.off() {
		return
	}
	if err := s.Check(o.l.spec); err != nil {
		q.bad("choose: %v", err)
		return
	}
	o.groups = o.l.spec.Groups(o.c.spec.SlotPages * page)
	o.dst = q.column(op, "dst", dst, b.Rows)
	o.q = q.shaped(op, "q", query, kernels.BF16, b.Rows, s.Heads*s.Dim)
	o.weights = q.shaped(op, "weights", weights, kernels.F32, b.Rows, s.Heads)
	if !s.Within.None() {
		o.within = q.shaped(op, "within", s.Within, kernels.I32, b.Rows, o.dst.cols)
	}
	blocks := 0
	if !s.Best.None() {
		o.best = q.shaped(op, "best", s.Best, kernels.I32, b.Rows, o.dst.cols)
		blocks = (o.groups + s.BlockSize - 1) / s.BlockSize
	}
	if q.off() {
		return
	}
	panels := (s.Heads + panelRows - 1) / panelRows
	q.require(needs{worker: scratchBytes([]int{o.groups, o.groups, page * panelRows, blocks, blocks}, []int{panels * panelRows * s.Dim})})
	q.list.chooses = append(q.list.chooses, o)
	q.push(opChoose, false, len(q.list.chooses)-1)
}

// chooseRows chooses row by row.
func (w *worker) chooseRows(o *chooseOp) bool {
	if !w.pooledCheck("choose", &o.b, o.c, o.l) {
		return w.sync()
	}
	unit, mine := 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		for r := range s.n {
			if unit == mine {
				w.chooseRow(o, &s, r)
				mine = w.claim()
			}
			unit++
		}
	}
	return true
}

// chooseRow scores the groups of a row and writes its masks.
func (w *worker) chooseRow(o *chooseOp, s *span, r int) {
	w.begin()
	n, d := o.l.spec.Groups(s.pos(&o.b, r)+1), o.s.Dim
	if n > 32*o.dst.cols {
		w.fail("cpu: choose: %d groups of a mask of %d", n, 32*o.dst.cols)
		return
	}
	score, spare, out := w.f32(o.groups)[:n], w.f32(o.groups), w.f32(page*panelRows)
	panel := w.queryPanels(o.q.u16(s.row+r), o.s.Heads, d)
	weights := o.weights.f32(s.row + r)
	for g := 0; g < n; {
		// Groups of one page stand one behind the other.
		from, to := o.seen(s, r, g), g+1
		for to < n && to-g < page && !s.tree && samePage(o.l, g, to) {
			to++
		}
		o.score(w, score[g:to], from, panel, weights, out)
		g = to
	}
	for g, v := range score {
		if v != v {
			score[g] = float32(math.Inf(-1))
		}
	}
	if !o.best.none() {
		w.bestBlocks(o, o.best.i32(s.row+r), score)
	}
	if !o.within.none() {
		within := o.within.i32(s.row + r)
		for g := range score {
			if !has(within, g) {
				score[g] = float32(math.NaN()) // no candidate
			}
		}
	}
	chooseGroups(o.dst.i32(s.row+r), score, spare, o.s.TopK)
}

// seen returns where the index key of a group that row r sees begins.
func (o *chooseOp) seen(s *span, r, g int) []uint16 {
	return o.c.seenGroup(o.l, s, &o.b, r, g)[o.l.spec.HeadDim:]
}

// samePage reports whether two groups stand in one page.
func samePage(l *layer, a, b int) bool {
	p, _ := l.spec.GroupPlace(a)
	q, _ := l.spec.GroupPlace(b)
	return p == q
}

// queryPanels packs heads as the rows of panels.
func (w *worker) queryPanels(q []uint16, heads, d int) []uint16 {
	panels := (heads + panelRows - 1) / panelRows
	packed := w.u16(panels * panelRows * d)
	clear(packed)
	to := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(packed))), panels*panelRows*d/2)
	for h := range heads {
		in := to[h/panelRows*panelRows*d/2+h%panelRows:]
		for i := 0; i < d; i += 2 {
			in[i/2*panelRows] = uint32(q[h*d+i]) | uint32(q[h*d+i+1])<<16
		}
	}
	return packed
}

// score computes the scores of groups whose index keys stand cols apart.
func (o *chooseOp) score(w *worker, score []float32, keys, panel []uint16, weights, out []float32) {
	d, n := o.s.Dim, len(score)
	clear(score)
	for h := 0; h < o.s.Heads; h += panelRows {
		w.set.Gemm(&out[0], panelRows, &panel[h*d], 4, &keys[0], o.l.pool.cols, n, d/2, false)
		for i := range score {
			y := score[i]
			for j, v := range out[i*panelRows:][:min(panelRows, o.s.Heads-h)] {
				if v > 0 || v != v {
					y += float32(weights[h+j] * v)
				}
			}
			score[i] = y
		}
	}
}

// chooseGroups sets the bits of the k largest scores, of equals the lower. NaN marks
// what is no candidate.
func chooseGroups(mask []int32, score, spare []float32, k int) {
	clear(mask)
	spare = spare[:0]
	for _, v := range score {
		if v == v {
			spare = append(spare, v)
		}
	}
	least, equal := float32(math.Inf(-1)), k
	if k < len(spare) {
		least = kthLargest(spare, k)
	} else {
		equal = len(spare)
	}
	for _, v := range score {
		if v > least {
			equal--
		}
	}
	for g, v := range score {
		switch {
		case v > least:
		case v == least && equal > 0:
			equal--
		default:
			continue
		}
		mask[g/32] |= 1 << (g % 32)
	}
}

// bestBlocks writes the mask of the groups of the best blocks.
func (w *worker) bestBlocks(o *chooseOp, mask []int32, score []float32) {
	n := (len(score) + o.s.BlockSize - 1) / o.s.BlockSize
	all := (o.groups + o.s.BlockSize - 1) / o.s.BlockSize
	value, spare := w.f32(all)[:n], w.f32(all)
	for b := range value {
		value[b] = float32(math.Inf(-1))
		for _, v := range score[b*o.s.BlockSize : min((b+1)*o.s.BlockSize, len(score))] {
			if v > value[b] {
				value[b] = v
			}
		}
	}
	if n > 0 {
		value[n-1] = float32(math.Inf(1))
	}
	chooseGroups(mask, value, spare, o.s.BestBlocks)
	spreadBlocks(mask, o.s.BlockSize, len(score))
}

// spreadBlocks makes of a mask of blocks one of their groups, n in all.
func spreadBlocks(mask []int32, size, n int) {
	for g := n - 1; g >= 0; g-- {
		bit := mask[g/size/32] >> (g / size % 32) & 1
		mask[g/32] = mask[g/32]&^(1<<(g%32)) | bit<<(g%32)
	}
	for g := n; g < 32*len(mask); g++ {
		mask[g/32] &^= 1 << (g % 32)
	}
}
