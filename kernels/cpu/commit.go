package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// Commit makes a path of kept rows of each span part of its sequence.
func (q *queue) Commit(c kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	const op = "commit"
	if q.off() {
		return
	}
	o := tableOp{kind: tableCommit, c: q.cachesOf(op, c.ID()), src: q.batch(op, b)}
	if q.off() {
		return
	}
	o.kept = q.column(op, "kept", kept, b.Spans)
	if !path.None() {
		o.path = q.column(op, "path", path, b.Rows)
	}
	q.require(needs{worker: commitScratch(o.c)})
	if !q.off() {
		q.pushTable(o)
	}
}

// commitScratch is what moving the rows of a path takes.
func commitScratch(c *caches) int {
	most := 0
	for _, l := range c.layers {
		if l.spec.Kind == kernels.Delta {
			o := deltaOp{l: l, group: l.spec.VHeads / l.spec.KHeads, s: kernels.DeltaSpec{KDim: l.spec.KDim, VDim: l.spec.VDim}}
			most = max(most, deltaScratch(&o))
		}
	}
	return most
}

// keptRow returns row j of those that a span keeps.
func (o *tableOp) keptRow(s *span, j int) int {
	if o.path.none() {
		return j
	}
	return o.path.at(s.row + j)
}

func (w *worker) commit(o *tableOp) {
	b, c := &o.src, o.c
	for i := range b.spans {
		n, k := b.length.at(i), o.kept.at(i)
		if n == 0 || k == 0 {
			continue
		}
		s := span{slot: b.seq.at(i), start: b.start.at(i), n: n, row: b.rowOff.at(i)}
		switch {
		case s.slot < 0 || s.slot >= c.spec.Slots:
			w.fail("cpu: commit: span %d is of slot %d; there are %d", i, s.slot, c.spec.Slots)
			return
		case k < 0 || k > n:
			w.fail("cpu: commit: span %d has %d rows and keeps %d", i, n, k)
			return
		case k < n && n > c.spec.MaxDraft+1:
			w.fail("cpu: commit: span %d of %d rows keeps %d; more than %d rows are kept whole", i, n, k, c.spec.MaxDraft+1)
			return
		case s.start < 0 || s.start+k > c.spec.SlotPages*page:
			w.fail("cpu: commit: span %d ends at position %d; a slot has %d", i, s.start+k, c.spec.SlotPages*page)
			return
		case s.row < 0 || s.row+n > b.rows:
			w.fail("cpu: commit: span %d has %d rows from row %d; the batch has %d", i, n, s.row, b.rows)
			return
		}
		if !w.follows(o, i, &s, k) {
			return
		}
		if s.measure(b); s.tree {
			w.compact(o, &s, k)
			c.stale(s.slot, s.start)
		}
		st := &c.slots[s.slot]
		if (s.start+k)/window > c.length.at(s.slot)/window {
			st.bank = 1 - st.bank
		}
		if n > c.short {
			st.tailAt, st.tailBank = s.start+k, 1-st.tailBank
		}
		c.length.set(s.slot, s.start+k)
	}
}

// follows checks that the rows that a span keeps follow each other from the
// committed prefix on.
func (w *worker) follows(o *tableOp, i int, s *span, k int) bool {
	before := -1
	for j := range k {
		row := o.keptRow(s, j)
		if row < 0 || row >= s.n || o.src.parent.at(s.row+row) != before {
			w.fail("cpu: commit: span %d keeps row %d at depth %d of %d; rows that are kept follow each other from the committed prefix on", i, row, j, k)
			return false
		}
		before = row
	}
	return true
}

// compact moves what the caches hold of the k kept rows of a tree to the places of
// their positions: upwards, each to a place that no later one needs.
func (w *worker) compact(o *tableOp, s *span, k int) {
	for _, l := range o.c.layers {
		o.moveSide(l, s, k)
		if l.spec.Kind == kernels.Pooled {
			o.movePooled(l, s, k)
			continue
		}
		if l.spec.Kind == kernels.Attention {
			o.moveKeys(l, s, k)
			if l.index != nil {
				o.moveKeys(l.index, s, k)
			}
			continue
		}
		o.moveRecords(l, s, k)
		w.passBorder(o, l, s, k)
	}
}

// moveKeys moves keys and values of an attention layer.
func (o *tableOp) moveKeys(l *layer, s *span, k int) {
	pages := o.c.pages[s.slot*o.c.spec.SlotPages:][:o.c.spec.SlotPages]
	for j := range k {
		from, to := s.start+o.keptRow(s, j), s.start+j
		if from == to || from/page >= len(pages) || pages[from/page] < 0 || pages[to/page] < 0 {
			continue
		}
		for head := range l.spec.KVHeads {
			p, q := int(pages[from/page])*l.spec.KVHeads+head, int(pages[to/page])*l.spec.KVHeads+head
			src, dst := l.keyPage(p), l.keyPage(q)
			for i := 0; i < len(src); i += page {
				dst[i+to%page] = src[i+from%page]
			}
			copyKey(l.valuePage(q), to%page, l.valuePage(p), from%page)
			l.odd[q] = l.odd[q] || l.odd[p]
		}
	}
}

// moveRecords moves the records and the inputs of the convolution of a recurrent
// layer.
func (o *tableOp) moveRecords(l *layer, s *span, k int) {
	c, open := o.c, o.c.length.at(s.slot)/window
	for j := range k {
		i, pos := o.keptRow(s, j), s.start+j
		if i == j {
			continue
		}
		bank := c.slots[s.slot].bank
		if pos/window != open {
			bank = 1 - bank
		}
		l.moveRecord(l.bankOf(s.slot, bank), pos%window, pos%window+i-j)
		copy(l.convRow(s.slot, pos&(c.ring-1)), l.convRow(s.slot, (s.start+i)&(c.ring-1)))
	}
}

// moveRecord moves a record from one column to another.
func (l *layer) moveRecord(st deltaState, to, from int) {
	keys := unsafe.Slice((*float32)(st.keys), l.spec.KHeads*l.spec.KDim*l.cols)
	for i := 0; i < len(keys); i += l.cols {
		keys[i+to] = keys[i+from]
	}
	for h := range l.spec.VHeads {
		records, decay := floats(st.records, h, l.cols*l.vdim), floats(st.decay, h, l.cols)
		copy(records[to*l.vdim:][:l.vdim], records[from*l.vdim:][:l.vdim])
		decay[to] = decay[from]
	}
}

// passBorder makes the state at a window border that of the kept path, if the path
// passes one and another row of the tree was the last to pass it.
func (w *worker) passBorder(o *tableOp, l *layer, s *span, k int) {
	c := o.c
	last := (c.length.at(s.slot)/window+1)*window - 1 // position before the border
	if last < s.start || s.start+k <= last || o.keptRow(s, last-s.start) == s.lastGate(&o.src, last) {
		return
	}
	bank := c.slots[s.slot].bank
	op := deltaOp{c: c, l: l, b: o.src, group: l.spec.VHeads / l.spec.KHeads, s: kernels.DeltaSpec{
		KHeads: l.spec.KHeads, VHeads: l.spec.VHeads, KDim: l.spec.KDim, VDim: l.spec.VDim,
	}}
	for head := range l.spec.KHeads {
		d := w.newDeltaHead(&op, *s, head)
		d.border(l.bankOf(s.slot, bank), l.bankOf(s.slot, 1-bank))
	}
}

// lastGate returns the row at position last whose path delta left in the spare bank:
// that of the last row there or behind, -1 if there is none.
func (s *span) lastGate(b *tables, last int) int {
	for i := s.n - 1; i >= 0; i-- {
		if s.pos(b, i) >= last {
			return s.ancestor(b, i, last)
		}
	}
	return -1
}
