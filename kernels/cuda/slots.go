//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// onSlot records an operation on a slot that exists.
func (q *queue) onSlot(op opID, cs kernels.Caches, slot int, body func(c *caches)) {
	q.do(op, func() {
		c := q.caches(cs.ID())
		if q.bad == nil && (slot < 0 || slot >= c.spec.Slots) {
			q.fail("slot %d of %d", slot, c.spec.Slots)
		}
		if q.bad == nil {
			body(c)
		}
	})
}

// lengthAt is the address of a slot's committed length.
func (c *caches) lengthAt(slot int) driver.Ptr {
	return c.be.bufs[c.length.ID].at(4 * int64(slot))
}

// setLength sets an I32 to a value or, if src is not 0, to another's.
func (q *queue) setLength(dst, src driver.Ptr, value int) {
	*args[lengthArgs](q) = lengthArgs{env: q.head(), dst: dst, src: src, value: int32(value)}
	q.launch(kSetLength, 1, 1, 0)
}

// Reset empties a slot: length 0. The state of position 0 is zero by definition
// and the convolution reads nothing before it, so no memory is written. The page
// table stays.
func (q *queue) Reset(cs kernels.Caches, slot int) {
	q.onSlot(opReset, cs, slot, func(c *caches) { q.setLength(c.lengthAt(slot), 0, 0) })
}

// SetPages writes into a slot's page table; a negative page is "none".
func (q *queue) SetPages(cs kernels.Caches, slot, first int, pages []int32) {
	q.onSlot(opSetPages, cs, slot, func(c *caches) {
		if first < 0 || first+len(pages) > c.spec.SlotPages {
			q.fail("entries %d+%d of a table of %d", first, len(pages), c.spec.SlotPages)
			return
		}
		for _, p := range pages {
			if int(p) >= c.spec.Pages {
				q.fail("page %d of %d", p, c.spec.Pages)
				return
			}
		}
		for at := 0; at < len(pages); at += maxEntries {
			n := min(maxEntries, len(pages)-at)
			a := args[pagesArgs](q)
			a.env, a.n = q.head(), int32(n)
			a.dst = c.pages.at(4 * (int64(slot)*int64(c.spec.SlotPages) + int64(first+at)))
			copy(a.pages[:], pages[at:at+n])
			q.launch(kSetPages, 1, 1, 0)
		}
	})
}

// Save copies a slot's recurrent states to a snapshot.
func (q *queue) Save(cs kernels.Caches, slot, snapshot int) {
	q.onSlot(opSave, cs, slot, func(c *caches) {
		if snapshot < 0 || snapshot >= c.spec.Snapshots {
			q.fail("snapshot %d of %d", snapshot, c.spec.Snapshots)
			return
		}
		q.copySlot(c, slot, snapshot, 0, false)
		q.copyRings(c, slot, snapshot, 0, false)
		q.setLength(c.saved.at(4*int64(snapshot)), c.lengthAt(slot), 0)
	})
}

// Restore copies a snapshot to a slot and sets its length.
func (q *queue) Restore(cs kernels.Caches, slot, snapshot, length int) {
	q.onSlot(opRestore, cs, slot, func(c *caches) {
		if length < 0 || length%kernels.WindowTokens != 0 {
			q.fail("length %d; it must be a multiple of %d", length, kernels.WindowTokens)
			return
		}
		if len(c.sizes.deltas)+len(c.sizes.pooled) > 0 {
			if snapshot < 0 || snapshot >= c.spec.Snapshots {
				q.fail("snapshot %d of %d", snapshot, c.spec.Snapshots)
				return
			}
			q.copySlot(c, slot, snapshot, length, true)
			q.copyRings(c, slot, snapshot, length, true)
		}
		q.setLength(c.lengthAt(slot), 0, length)
	})
}

// copyBlocks is the number of blocks that copy one layer's state.
const copyBlocks = 64

// copySlot copies the states and convolution inputs of all Delta layers between
// a slot and a snapshot. With none there is only the check of the length.
func (q *queue) copySlot(c *caches, slot, snapshot, length int, restore bool) {
	s, n, z := int64(slot), int64(snapshot), c.sizes
	*args[slotArgs](q) = slotArgs{
		env: q.head(), length: c.lengthAt(slot), saved: c.saved.at(4 * n),
		state: c.state.at(4 * s * 2 * z.state), snap: c.snaps.at(4 * n * z.state),
		conv: c.conv.at(2 * s * z.conv), tails: c.tails.at(2 * n * z.tail),
		layers: c.deltas.ptr, halfState: uint64(z.state),
		convRing: int32(z.convRing), to: int32(length), restore: flag(restore), slot: int32(slot),
	}
	q.launch(kSlotCopy, copyBlocks, len(z.deltas), 0)
}
