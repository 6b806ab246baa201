package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// slotKind says which operation on a slot a slotOp is.
type slotKind uint8

const (
	slotReset slotKind = iota
	slotPages
	slotSave
	slotRestore
)

// slotOp changes one slot of the caches.
type slotOp struct {
	kind     slotKind
	c        *caches
	slot     int
	snapshot int
	length   int
	first    int // page table entry
	from, to int // of the list's ints
}

// slotOf checks a slot for an operation.
func (q *queue) slotOf(op string, c kernels.Caches, slot int) *caches {
	if q.off() {
		return nil
	}
	x := q.cachesOf(op, c.ID())
	if x != nil && (slot < 0 || slot >= x.spec.Slots) {
		q.bad("%s: there is no slot %d in %d", op, slot, x.spec.Slots)
		return nil
	}
	return x
}

func (q *queue) pushSlot(o slotOp, solo bool) {
	q.list.slots = append(q.list.slots, o)
	q.push(opSlot, solo, len(q.list.slots)-1)
}

// Reset empties a slot.
func (q *queue) Reset(c kernels.Caches, slot int) {
	if x := q.slotOf("reset", c, slot); x != nil {
		q.pushSlot(slotOp{kind: slotReset, c: x, slot: slot}, false)
	}
}

// SetPages writes pages into a slot's page table.
func (q *queue) SetPages(c kernels.Caches, slot, first int, pages []int32) {
	x := q.slotOf("set pages", c, slot)
	if x == nil {
		return
	}
	if first < 0 || first+len(pages) > x.spec.SlotPages {
		q.bad("set pages: entries %d to %d of slot %d; a slot has %d", first, first+len(pages)-1, slot, x.spec.SlotPages)
		return
	}
	from := len(q.list.ints)
	q.list.ints = append(q.list.ints, pages...)
	q.pushSlot(slotOp{kind: slotPages, c: x, slot: slot, first: first, from: from, to: len(q.list.ints)}, true)
}

// Save copies a slot's recurrent states to a snapshot.
func (q *queue) Save(c kernels.Caches, slot, snapshot int) {
	x := q.slotOf("save", c, slot)
	if x == nil {
		return
	}
	if snapshot < 0 || snapshot >= x.spec.Snapshots {
		q.bad("save: there is no snapshot %d in %d", snapshot, x.spec.Snapshots)
		return
	}
	q.pushSlot(slotOp{kind: slotSave, c: x, slot: slot, snapshot: snapshot}, false)
}

// Restore copies a snapshot to a slot and sets its length.
func (q *queue) Restore(c kernels.Caches, slot, snapshot, length int) {
	x := q.slotOf("restore", c, slot)
	if x == nil {
		return
	}
	if length < 0 || length%window != 0 || length > x.spec.SlotPages*page {
		q.bad("restore: length %d of slot %d; want a multiple of %d up to %d", length, slot, window, x.spec.SlotPages*page)
		return
	}
	if x.recurrent() && (snapshot < 0 || snapshot >= x.spec.Snapshots) {
		q.bad("restore: there is no snapshot %d in %d", snapshot, x.spec.Snapshots)
		return
	}
	q.pushSlot(slotOp{kind: slotRestore, c: x, slot: slot, snapshot: snapshot, length: length}, false)
}

// recurrent reports whether a layer has a state beside its pages.
func (c *caches) recurrent() bool {
	for _, l := range c.layers {
		if l.spec.Kind != kernels.Attention {
			return true
		}
	}
	return false
}

func (w *worker) slot(o *slotOp, ints []int32) {
	c := o.c
	switch o.kind {
	case slotReset:
		w.eachDelta(c, func(l *layer) { clear(l.stateOf(o.slot, 0)) })
		if w.id == 0 {
			c.slots[o.slot] = slotState{tailAt: never}
			c.length.set(o.slot, 0)
			c.stale(o.slot, 0)
		}
	case slotPages:
		copy(c.pages[o.slot*c.spec.SlotPages+o.first:], ints[o.from:o.to])
		c.stale(o.slot, o.first*page)
	case slotSave:
		w.save(o)
	case slotRestore:
		w.restore(o)
	}
}

// eachDelta calls f for this worker's share of the recurrent layers.
func (w *worker) eachDelta(c *caches, f func(l *layer)) { w.each(c, kernels.Delta, f) }

// each calls f for this worker's share of the layers of a kind.
func (w *worker) each(c *caches, k kernels.LayerKind, f func(l *layer)) {
	for i, l := range c.layers {
		if l.spec.Kind == k && i%w.n == w.id {
			f(l)
		}
	}
}

// stateOf returns the state of a bank.
func (l *layer) stateOf(slot, bank int) []byte {
	return unsafe.Slice((*byte)(l.bankOf(slot, bank).state), l.keysAt)
}

// snapshotOf returns the state and the convolution inputs of a snapshot.
func (l *layer) snapshotOf(i int) (state []byte, tail []uint16) {
	p := addBytes(l.snap.ptr(), i*l.snapshot)
	return unsafe.Slice((*byte)(p), l.keysAt), unsafe.Slice((*uint16)(addBytes(p, l.keysAt)), convTail*l.channels)
}

func (w *worker) save(o *slotOp) {
	c := o.c
	n := c.length.at(o.slot)
	if n%window != 0 {
		w.fail("cpu: save: slot %d has length %d; want a multiple of %d", o.slot, n, window)
		return
	}
	w.eachDelta(c, func(l *layer) {
		state, tail := l.snapshotOf(o.snapshot)
		copy(state, l.stateOf(o.slot, c.slots[o.slot].bank))
		for i := range convTail {
			dst := tail[i*l.channels:][:l.channels]
			if pos := n - convTail + i; pos >= 0 {
				copy(dst, c.convInput(l, o.slot, pos))
			} else {
				clear(dst)
			}
		}
	})
	w.each(c, kernels.Pooled, func(l *layer) { l.savePooled(o.slot, o.snapshot, n) })
	if w.id == 0 {
		c.snapshots[o.snapshot] = true
	}
}

// restore brings a snapshot to bank 0 and its inputs to tail bank 0.
func (w *worker) restore(o *slotOp) {
	c := o.c
	if c.recurrent() && !c.snapshots[o.snapshot] {
		w.fail("cpu: restore: snapshot %d was never saved", o.snapshot)
		return
	}
	w.eachDelta(c, func(l *layer) {
		state, tail := l.snapshotOf(o.snapshot)
		copy(l.stateOf(o.slot, 0), state)
		for i := range convTail {
			copy(l.convRow(o.slot, c.ring+i), tail[i*l.channels:][:l.channels])
		}
	})
	w.each(c, kernels.Pooled, func(l *layer) { l.restorePooled(o.slot, o.snapshot) })
	if w.id == 0 {
		c.slots[o.slot] = slotState{tailAt: o.length}
		c.length.set(o.slot, o.length)
		c.stale(o.slot, 0)
	}
}
