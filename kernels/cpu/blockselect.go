package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// blockRows is the number of rows whose blocks are scored together.
const blockRows = 16

// blockOp is a SelectBlocks: like Select an attention over index keys that stops at
// its scores, of which each key is that of a block.
type blockOp struct {
	attendOp
	blocks      *blockCache
	ratio, topK int
	most        int // blocks of a slot
}

// SelectBlocks records the choice of keys by blocks.
func (q *queue) SelectBlocks(dst, proj kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.BlockSpec) {
	const op = "select blocks"
	if q.off() {
		return
	}
	o := blockOp{ratio: s.Ratio, topK: s.TopK}
	o.b = q.batch(op, b)
	c, l := q.layerOf(op, h, kernels.Attention)
	if q.off() {
		return
	}
	if err := s.Check(l.spec); err != nil {
		q.bad("select blocks: %v", err)
		return
	}
	o.c, o.l, o.blocks, o.most = c, l.index, l.blocks, c.spec.SlotPages*page/s.Ratio
	o.s = kernels.AttnSpec{QHeads: s.Heads, KVHeads: 1, HeadDim: s.Dim, Rotary: s.Rotary, FirstKey: s.FirstKey}
	o.group, o.qStride, o.kCol, o.block = s.Heads, s.Dim, s.Heads*s.Dim, 1
	o.dst = q.column(op, "dst", dst, b.Rows)
	o.proj = q.shaped(op, "proj", proj, kernels.BF16, b.Rows, (s.Heads+1)*s.Dim)
	o.qNorm, o.kNorm = q.normOf(op, s.QNorm, s.Dim), q.normOf(op, s.KNorm, s.Dim)
	if q.off() {
		return
	}
	var ok bool
	if o.rope, ok = q.ropeOf(op, s.Rope, s.Rotary); !ok {
		return
	}
	o.keys = o.dst // whose width attendCheck looks at
	q.require(needs{worker: scratchBytes(
		[]int{s.Dim, s.Dim, s.Heads * page, blockRows * o.most, o.most}, []int{s.Dim, blockRows * s.Heads * s.Dim, s.Dim * page})})
	q.list.choices = append(q.list.choices, o)
	q.push(opSelectBlocks, false, len(q.list.choices)-1)
}

// blockCache keeps the keys of the whole blocks of each slot, made when they are first
// looked at: those that end before fresh, by slot, are up to date.
type blockCache struct {
	mem   block
	slot  int // bytes
	fresh []int
}

// allocateBlocks makes room for the keys of a layer's blocks, if it chooses by blocks.
func (c *caches) allocateBlocks(l *layer) (err error) {
	if l.spec.IndexRatio == 0 {
		return nil
	}
	panels := (c.spec.SlotPages + l.spec.IndexRatio - 1) / l.spec.IndexRatio
	l.blocks = &blockCache{slot: panels * l.spec.IndexDim * page * 2, fresh: make([]int, c.spec.Slots)}
	l.blocks.mem, err = c.b.mem.alloc(kernels.State, c.spec.Slots*l.blocks.slot)
	return err
}

// panel returns the keys of a page of blocks of a slot, as those of a page of keys lie.
func (b *blockCache) panel(slot, i, dim int) []uint32 {
	return unsafe.Slice((*uint32)(addBytes(b.mem.ptr(), slot*b.slot+i*dim*page*2)), dim*page/2)
}

// stale says that keys of a slot from a position on are others now.
func (c *caches) stale(slot, pos int) {
	for _, l := range c.layers {
		if l.blocks != nil {
			l.blocks.fresh[slot] = min(l.blocks.fresh[slot], pos)
		}
	}
}

// selectBlocks appends the keys of all rows and makes those of the blocks before each
// span, then chooses for a few rows at a time.
func (w *worker) selectBlocks(o *blockOp) bool {
	if _, ok := w.attendCheck(&o.attendOp); !ok {
		return w.sync()
	}
	u := w.blockScratch(o)
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		if s.n == 0 {
			continue
		}
		lo, hi := w.share(s.n)
		for r := lo; r < hi; r++ {
			place := s.start + r
			putKey(o.l.keyPage(o.pageOf(s, 0, place/page)), o.proj.u16(s.row + r)[o.kCol:], place%page)
		}
		u.s = s
		from := o.blocksAt(min(s.start, o.blocks.fresh[s.slot]))
		lo, hi = w.share(o.blocksAt(s.start) - from)
		for b := from + lo; b < from+hi; b++ {
			w.blockKey(&u, 0, b)
			putKey(o.blocks.panel(s.slot, b/page, o.s.HeadDim), u.key, b%page)
		}
	}
	if !w.sync() {
		return false
	}
	unit, mine := 0, w.claim()
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		if s.n > 0 && w.id == 0 {
			o.blocks.fresh[s.slot] = s.start
		}
		for r := 0; r < s.n; r += blockRows {
			if unit == mine {
				w.blockUnit(o, s, r, min(r+blockRows, s.n))
				mine = w.claim()
			}
			unit++
		}
	}
	return true
}

// blockUnit is a few rows of a span with their scores.
type blockUnit struct {
	o         *blockOp
	s         span
	from      int
	q         []uint16 // of all heads, row after row
	wide, sum []float32
	key       []uint16
	panel     []uint32 // keys of up to a page of blocks
	products  []float32
	score     []float32 // of row i from i*o.most on
	spare     []float32
}

// blockScratch takes the scratch of a unit.
func (w *worker) blockScratch(o *blockOp) blockUnit {
	w.begin()
	d := o.s.HeadDim
	u := blockUnit{o: o, wide: w.f32(d), sum: w.f32(d), products: w.f32(o.group * page)}
	u.score, u.spare = w.f32(blockRows*o.most), w.f32(o.most)
	u.key, u.q = w.u16(d), w.u16(blockRows*o.group*d)
	u.panel = unsafe.Slice((*uint32)(w.take(2*d*page)), d*page/2)
	return u
}

// blockUnit chooses for rows [from, to) of a span. The blocks before all of them have
// the same keys for each.
func (w *worker) blockUnit(o *blockOp, s span, from, to int) {
	u := w.blockScratch(o)
	u.s, u.from = s, from
	a := attention{o: &o.attendOp, s: s, from: from, rows: (to - from) * o.group, wide: u.wide, q: u.q}
	w.queries(&a, from)
	made := o.blocksAt(s.start)
	common := made
	if !s.tree {
		common = o.blocksAt(s.start + from)
	}
	for b := 0; b < made; b += page {
		panel := o.blocks.panel(s.slot, b/page, o.s.HeadDim)
		for r := from; r < to; r++ {
			w.blockScores(&u, panel, r, b, min(page, made-b))
		}
	}
	for b := made; b < common; b += page {
		n := min(page, common-b)
		w.blockKeys(&u, from, b, n)
		for r := from; r < to; r++ {
			w.blockScores(&u, u.panel, r, b, n)
		}
	}
	for r := from; r < to; r++ {
		top := s.pos(&o.b, r) + 1
		blocks := o.blocksAt(top)
		for b := common; b < blocks; b += page {
			n := min(page, blocks-b)
			w.blockKeys(&u, r, b, n)
			w.blockScores(&u, u.panel, r, b, n)
		}
		mask := o.dst.i32(s.row + r)
		choose(mask, u.score[(r-from)*o.most:][:blocks], u.spare, o.s.FirstKey, o.ratio, o.topK)
		for pos := o.s.FirstKey + blocks*o.ratio; pos < top; pos++ {
			mask[pos/32] |= 1 << (pos % 32)
		}
	}
}

// blocksAt returns the number of whole blocks before a position.
func (o *blockOp) blocksAt(pos int) int { return max(pos-o.s.FirstKey, 0) / o.ratio }

// blockKeys makes the keys of n blocks from b on along the path of row r.
func (w *worker) blockKeys(u *blockUnit, r, b, n int) {
	for i := range n {
		w.blockKey(u, r, b+i)
		putKey(u.panel, u.key, i)
	}
}

// blockKey makes the key of block b along the path of row r.
func (w *worker) blockKey(u *blockUnit, r, b int) {
	o, set := u.o, w.set
	first := o.s.FirstKey + b*o.ratio
	clear(u.sum)
	for pos := first; pos < first+o.ratio; pos++ {
		place := pos
		if u.s.tree && pos >= u.s.start {
			place = u.s.start + u.s.ancestor(&o.b, r, pos)
		}
		getKey(u.key, o.l.keyPage(o.pageOf(u.s, 0, place/page)), place%page)
		set.FromBF16(u.wide, u.key)
		set.Add(u.sum, u.wide)
	}
	set.Scale(u.sum, u.sum, 1/float32(o.ratio))
	set.ToBF16(u.key, u.sum)
	w.rotated(&o.attendOp, u.key, u.key, u.wide, &o.kNorm, first)
}

// getKey reads the key at place t of a page.
func getKey(key []uint16, keys []uint32, t int) {
	for k := 0; k < len(key); k += 2 {
		pair := keys[k*halfRows+t]
		key[k], key[k+1] = uint16(pair), uint16(pair>>16)
	}
}

// blockScores scores the n blocks of a panel, which are those from b on, for row r.
func (w *worker) blockScores(u *blockUnit, panel []uint32, r, b, n int) {
	o, set, d := u.o, w.set, u.o.s.HeadDim
	i := r - u.from
	for h := 0; h < o.group; h += set.MaxM4 {
		set.Gemm(&u.products[h*page], page, (*uint16)(unsafe.Pointer(unsafe.SliceData(panel))), 4, &u.q[(i*o.group+h)*d], d, min(set.MaxM4, o.group-h), d/2, false)
	}
	y := u.score[i*o.most+b:][:n]
	clear(y)
	for h := range o.group {
		for j, v := range u.products[h*page:][:n] {
			if v < 0 {
				v = 0
			}
			y[j] += v
		}
	}
}
