package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// pooledCache is the memory of one Pooled layer. By slot: the ring of the window's
// keys (BF16), the ring of what is pooled (FP32), and the groups of rows that are not
// in the place of their position. By page: the groups' keys and index keys.
type pooledCache struct {
	keys, raw           ring
	perPage, cols       int // groups of a page; columns of a group
	pendingAt           int // offset in a slot, in bytes
	slot, rings         int // bytes of a slot, and of its rings alone
	slots, pages, snaps block
}

// allocatePooled makes room for a Pooled layer.
func (c *caches) allocatePooled(l *layer) (err error) {
	s, p := l.spec, &pooledCache{}
	l.pool = p
	window, raw := s.Rings(c.spec.MaxDraft)
	p.perPage, p.cols = s.PageGroups(), s.HeadDim+s.IndexDim
	p.keys = ring{n: window, line: 2 * s.HeadDim}
	p.raw = ring{n: raw, line: 4 * s.PoolCols(), at: p.keys.bytes()}
	p.rings = p.keys.bytes() + p.raw.bytes()
	p.slot, p.pendingAt = p.rings, p.rings
	if s.Ratio > 0 {
		p.slot += roundUp(2*(c.spec.MaxDraft+1)*p.cols, lineBytes)
	}
	if p.slots, err = c.b.mem.alloc(kernels.State, max(p.slot, lineBytes)*c.spec.Slots); err != nil {
		return err
	}
	if n := 2 * c.spec.Pages * p.perPage * p.cols; n > 0 {
		if p.pages, err = c.b.mem.alloc(kernels.KV, n); err != nil {
			return err
		}
	}
	if n := p.rings * c.spec.Snapshots; n > 0 {
		p.snaps, err = c.b.mem.alloc(kernels.State, n)
	}
	return err
}

func (p *pooledCache) slotAt(slot int) unsafe.Pointer { return addBytes(p.slots.ptr(), slot*p.slot) }

// key returns the window's key at a position.
func (l *layer) key(slot, pos int) []uint16 {
	return unsafe.Slice((*uint16)(l.pool.keys.row(l.pool.slotAt(slot), pos)), l.spec.HeadDim)
}

// rawRow returns what a position adds to its groups.
func (l *layer) rawRow(slot, pos int) []float32 {
	return unsafe.Slice((*float32)(l.pool.raw.row(l.pool.slotAt(slot), pos)), l.spec.PoolCols())
}

// pending returns the place of the group of row i of a tree.
func (l *layer) pending(slot, i int) []uint16 {
	p := l.pool
	return unsafe.Slice((*uint16)(addBytes(p.slotAt(slot), p.pendingAt+2*i*p.cols)), p.cols)
}

// group returns the place of a group in the pages of a slot; nil where no page is set.
func (c *caches) group(l *layer, slot, group int) []uint16 {
	page, place := l.spec.GroupPlace(group)
	if page >= c.spec.SlotPages {
		return nil
	}
	at := c.pages[slot*c.spec.SlotPages+page]
	if at < 0 || int(at) >= c.spec.Pages {
		return nil
	}
	p := l.pool
	return unsafe.Slice((*uint16)(addBytes(p.pages.ptr(), 2*(int(at)*p.perPage+place)*p.cols)), p.cols)
}

// groupOf returns the place of the group that row i of a span completes, and nil where
// it completes none: in the pages if the row is in the place of its position, else
// among the pending ones.
func (c *caches) groupOf(l *layer, s *span, b *tables, i int) []uint16 {
	pos := s.pos(b, i)
	switch {
	case (pos+1)%l.spec.Ratio != 0:
		return nil
	case pos == s.start+i:
		return c.group(l, s.slot, pos/l.spec.Ratio)
	}
	return l.pending(s.slot, i)
}

// seenGroup returns the place of a group that is complete at row i of a span.
func (c *caches) seenGroup(l *layer, s *span, b *tables, i, group int) []uint16 {
	if last := (group+1)*l.spec.Ratio - 1; s.tree && last >= s.start {
		return c.groupOf(l, s, b, s.ancestor(b, i, last))
	}
	return c.group(l, s.slot, group)
}

// movePooled moves what a Pooled layer holds of the kept rows of a tree.
func (o *tableOp) movePooled(l *layer, s *span, k int) {
	for j := range k {
		i, pos := o.keptRow(s, j), s.start+j
		if i == j {
			continue
		}
		slot := l.pool.slotAt(s.slot)
		l.pool.keys.move(slot, pos, s.start+i)
		l.pool.raw.move(slot, pos, s.start+i)
		if l.spec.Ratio > 0 && (pos+1)%l.spec.Ratio == 0 {
			copy(o.c.group(l, s.slot, pos/l.spec.Ratio), l.pending(s.slot, i))
		}
	}
}

// savePooled and restorePooled copy what the rings of a slot hold of positions below
// its length to a snapshot, and a snapshot's rings back.
func (l *layer) savePooled(slot, snapshot, length int) {
	p := l.pool
	to := addBytes(p.snaps.ptr(), snapshot*p.rings)
	p.keys.save(to, p.slotAt(slot), length)
	p.raw.save(to, p.slotAt(slot), length)
}

func (l *layer) restorePooled(slot, snapshot int) {
	p := l.pool
	copy(unsafe.Slice((*byte)(p.slotAt(slot)), p.rings), unsafe.Slice((*byte)(addBytes(p.snaps.ptr(), snapshot*p.rings)), p.rings))
}

// poolOp is a Pool, or, with keep set, a Keep.
type poolOp struct {
	keep      bool
	c         *caches
	l         *layer
	b         tables
	dst, proj view // of Keep, proj is what it keeps
	bias      *weight
	at, dim   int // of the columns of a raw row, or of a group, that are meant
	n         int // keys of a position
}

// Pool records the pooling of groups.
func (q *queue) Pool(dst, proj kernels.Buf, h kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	const op = "pool"
	if q.off() {
		return
	}
	o := poolOp{b: q.batch(op, b)}
	if o.c, o.l = q.layerOf(op, h, kernels.Pooled); q.off() {
		return
	}
	if err := s.Check(o.l.spec); err != nil {
		q.bad("pool: %v", err)
		return
	}
	o.dim, o.n = s.Dim(o.l.spec), o.l.spec.Reach()/o.l.spec.Ratio
	if s.Index {
		o.at = 2 * o.n * o.l.spec.HeadDim
	}
	o.dst = q.shaped(op, "dst", dst, kernels.BF16, b.Rows, o.dim)
	o.proj = q.shaped(op, "proj", proj, kernels.F32, b.Rows, 2*o.n*o.dim)
	if !s.Bias.None() {
		if o.bias = q.weightOf(op, s.Bias, kernels.Table); o.bias != nil && (o.bias.rows != o.l.spec.Ratio || o.bias.cols != o.n*o.dim) {
			q.bad("pool: bias %s is [%d, %d], want [%d, %d]", o.bias.name, o.bias.rows, o.bias.cols, o.l.spec.Ratio, o.n*o.dim)
		}
	}
	q.require(needs{worker: scratchBytes([]int{o.dim, o.dim, o.dim, o.dim, o.dim}, nil)})
	q.pushPool(o)
}

func (q *queue) pushPool(o poolOp) {
	if q.off() {
		return
	}
	q.list.pools = append(q.list.pools, o)
	q.push(opPool, false, len(q.list.pools)-1)
}

// Keep records that rows are the keys of groups.
func (q *queue) Keep(src kernels.Buf, h kernels.Layer, b *kernels.Batch, index bool) {
	const op = "keep"
	if q.off() {
		return
	}
	o := poolOp{keep: true, b: q.batch(op, b)}
	if o.c, o.l = q.layerOf(op, h, kernels.Pooled); q.off() {
		return
	}
	if o.dim = o.l.spec.HeadDim; index {
		o.at, o.dim = o.dim, o.l.spec.IndexDim
	}
	if o.l.spec.Ratio == 0 || o.dim == 0 {
		q.bad("keep: the layer has groups of %d, index keys of %d", o.l.spec.Ratio, o.l.spec.IndexDim)
	}
	o.proj = q.shaped(op, "src", src, kernels.BF16, b.Rows, o.dim)
	q.pushPool(o)
}

// poolRows pools or keeps groups, then remembers what the rows add to later ones.
func (w *worker) poolRows(o *poolOp) bool {
	op := "pool"
	if o.keep {
		op = "keep"
	}
	if !w.pooledCheck(op, &o.b, o.c, o.l) {
		return w.sync()
	}
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		lo, hi := w.share(s.n)
		for r := lo; r < hi; r++ {
			switch {
			case !o.keep:
				w.poolRow(o, &s, r)
			default:
				if at := o.c.groupOf(o.l, &s, &o.b, r); at != nil {
					copy(at[o.at:o.at+o.dim], o.proj.u16(s.row+r))
				}
			}
		}
	}
	if o.keep {
		return true
	}
	if !w.sync() {
		return false
	}
	for i := range o.b.spans {
		s := o.b.spanOf(i)
		w.keepRows(o.c, &o.l.pool.raw, s, o.l.pool.slotAt(s.slot), 4*o.at, &o.proj)
	}
	return true
}

// pooledCheck checks the spans of a batch, and that pages are set where groups end.
func (w *worker) pooledCheck(op string, b *tables, c *caches, l *layer) bool {
	w.checkSpans()
	for i := range b.spans {
		s, ok := w.span(op, b, c, i)
		if !ok {
			return false
		}
		if s.n == 0 || l.spec.Ratio == 0 {
			continue
		}
		for g := range l.spec.Groups(s.end()) {
			if c.group(l, s.slot, g) == nil {
				w.fail("cpu: %s: span %d: no page is set for the group of slot %d that ends at position %d", op, i, s.slot, (g+1)*l.spec.Ratio-1)
				return false
			}
		}
	}
	return true
}

// poolRow pools the group that row r completes, if it does.
func (w *worker) poolRow(o *poolOp, s *span, r int) {
	ratio, pos := o.l.spec.Ratio, s.pos(&o.b, r)
	dst := o.dst.u16(s.row + r)
	if (pos+1)%ratio != 0 {
		clear(dst)
		return
	}
	w.begin()
	top, sum, acc, gate, x := w.f32(o.dim), w.f32(o.dim), w.f32(o.dim), w.f32(o.dim), w.f32(o.dim)
	first := pos + 1 - ratio
	from := max(0, first-(o.n-1)*ratio)
	// Two passes: the largest gate of each channel, then the sums.
	for p := from; p <= pos; p++ {
		o.gate(gate, s, r, p, first)
		for c, v := range gate {
			if p == from || v > top[c] {
				top[c] = v
			}
		}
	}
	clear(sum)
	clear(acc)
	for p := from; p <= pos; p++ {
		keys := o.gate(gate, s, r, p, first)
		for c := range gate {
			gate[c] -= top[c]
		}
		w.set.ExpSub(gate, gate, 0)
		w.set.Add(sum, gate)
		w.set.Mul(x, gate, keys)
		w.set.Add(acc, x)
	}
	for c := range acc {
		acc[c] /= sum[c]
	}
	w.set.ToBF16(dst, acc)
}

// gate writes the gates that a position has in the group that begins at first, on the
// path of row r, and returns the keys that go with them.
func (o *poolOp) gate(dst []float32, s *span, r, pos, first int) (keys []float32) {
	var raw []float32
	switch {
	case pos < s.start:
		raw = o.l.rawRow(s.slot, pos)[o.at:]
	case s.tree:
		raw = o.proj.f32(s.row + s.ancestor(&o.b, r, pos))
	default:
		raw = o.proj.f32(s.row + pos - s.start)
	}
	at := 0
	if o.n == 2 && pos >= first {
		at = o.dim
	}
	copy(dst, raw[o.n*o.dim+at:][:o.dim])
	if o.bias != nil {
		for c, v := range o.bias.row(pos % o.l.spec.Ratio)[at:][:o.dim] {
			dst[c] += v
		}
	}
	return raw[at:][:o.dim]
}
