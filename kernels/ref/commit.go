package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Commit makes a path of kept rows of each span part of its sequence.
func (r *recorder) Commit(cs kernels.Caches, b *kernels.Batch, kept, path kernels.Buf) {
	r.add("commit", func() (func() error, error) {
		o := operands{be: r.be}
		c, t := o.find(cs.ID()), o.batch(b, "batch")
		keep := o.table(kept, "kept", b.Spans)
		var along view
		if !path.None() {
			along = o.table(path, "path", b.Rows)
		}
		return func() error {
			spans, err := t.active(c.spec.Slots)
			if err != nil {
				return err
			}
			for i := range spans {
				sp := &spans[i]
				if err := c.commit(sp, keep.int(sp.index), along); err != nil {
					return fmt.Errorf("span %d: %w", sp.index, err)
				}
			}
			return nil
		}, o.err
	})
}

// keptPath returns the rows that a span keeps, in order of position.
func (sp *span) keptPath(kept int, along view) ([]int, error) {
	path, before := make([]int, kept), -1
	for j := range path {
		i := j
		if along.b != nil {
			i = along.int(sp.off + j)
		}
		if i < 0 || i >= sp.n || sp.parent[i] != before {
			return nil, fmt.Errorf("row %d is kept at depth %d of %d; rows that are kept follow each other from the committed prefix on", i, j, kept)
		}
		path[j], before = i, i
	}
	return path, nil
}

func (c *caches) commit(sp *span, kept int, along view) error {
	switch {
	case kept < 0 || kept > sp.n:
		return fmt.Errorf("%d rows kept of %d", kept, sp.n)
	case kept > 0 && kept < sp.n && sp.n > c.spec.MaxDraft+1:
		return fmt.Errorf("%d rows kept of %d; a span of more than MaxDraft+1 = %d rows must be kept whole", kept, sp.n, c.spec.MaxDraft+1)
	case kept == 0:
		return nil
	}
	path, err := sp.keptPath(kept, along)
	if err != nil {
		return err
	}
	for i, d := range c.delta {
		if err := c.compact(i, sp, path); err != nil {
			return err
		}
		if p := c.pooled[i]; p != nil {
			if err := c.movePooled(p, sp, path); err != nil {
				return err
			}
		}
		if d == nil {
			continue
		}
		slot := &d.slots[sp.slot]
		if slot.tentative.n == 0 {
			slot.committed.behind = true
			continue
		}
		if t := slot.tentative; t.n != sp.n || t.start != sp.start {
			return fmt.Errorf("layer %d did not run over slot %d, rows %d+%d", i, sp.slot, sp.start, sp.n)
		}
		from := slot.after[0]
		if !slot.tentative.whole {
			from = slot.after[path[kept-1]]
		}
		slot.committed.copyFrom(from)
		slot.tentative = tentative{}
	}
	c.length.setInt(sp.slot, sp.start+kept)
	return nil
}

// slotOp records an operation on a slot that exists.
func (r *recorder) slotOp(name string, cs kernels.Caches, slot int, run func(*caches) error) {
	r.add(name, func() (func() error, error) {
		o := operands{be: r.be}
		c := o.find(cs.ID())
		if o.err == nil && (slot < 0 || slot >= c.spec.Slots) {
			o.fail("slot %d of %d", slot, c.spec.Slots)
		}
		return func() error { return run(c) }, o.err
	})
}

// Reset empties a slot. Its page table stays.
func (r *recorder) Reset(cs kernels.Caches, slot int) {
	r.slotOp("reset", cs, slot, func(c *caches) error {
		c.length.setInt(slot, 0)
		for _, d := range c.delta {
			if d != nil {
				d.slots[slot].committed.zero()
				d.slots[slot].tentative = tentative{}
			}
		}
		return nil
	})
}

// SetPages writes into a slot's page table; a negative page is "none".
func (r *recorder) SetPages(cs kernels.Caches, slot, first int, pages []int32) {
	held := append([]int32(nil), pages...)
	r.slotOp("set pages", cs, slot, func(c *caches) error {
		if first < 0 || first+len(held) > c.spec.SlotPages {
			return fmt.Errorf("entries %d+%d of a table of %d", first, len(held), c.spec.SlotPages)
		}
		for _, p := range held {
			if int(p) >= c.spec.Pages {
				return fmt.Errorf("page %d of %d", p, c.spec.Pages)
			}
		}
		copy(c.pages[slot][first:], held)
		return nil
	})
}

// Save copies a slot's recurrent states to a snapshot.
func (r *recorder) Save(cs kernels.Caches, slot, snapshot int) {
	r.slotOp("save", cs, slot, func(c *caches) error {
		if snapshot < 0 || snapshot >= c.spec.Snapshots {
			return fmt.Errorf("snapshot %d of %d", snapshot, c.spec.Snapshots)
		}
		n := c.length.int(slot)
		if n%kernels.WindowTokens != 0 {
			return fmt.Errorf("slot %d has length %d; it must be a multiple of %d", slot, n, kernels.WindowTokens)
		}
		for _, d := range c.delta {
			if d != nil {
				d.snapshots[snapshot].copyFrom(d.slots[slot].committed)
			}
		}
		for _, p := range c.pooled {
			if p != nil {
				p.snaps[snapshot].copyRows(p.slots[slot])
			}
		}
		c.saved[snapshot] = n
		return nil
	})
}

// Restore copies a snapshot to a slot and sets its length.
func (r *recorder) Restore(cs kernels.Caches, slot, snapshot, length int) {
	r.slotOp("restore", cs, slot, func(c *caches) error {
		if length < 0 || length%kernels.WindowTokens != 0 {
			return fmt.Errorf("length %d; it must be a multiple of %d", length, kernels.WindowTokens)
		}
		for i, d := range c.delta {
			if c.attn[i] != nil {
				continue
			}
			if snapshot < 0 || snapshot >= c.spec.Snapshots {
				return fmt.Errorf("snapshot %d of %d", snapshot, c.spec.Snapshots)
			}
			if c.saved[snapshot] != length {
				return fmt.Errorf("snapshot %d was saved at length %d, not %d", snapshot, c.saved[snapshot], length)
			}
			if p := c.pooled[i]; p != nil {
				p.slots[slot].copyRows(p.snaps[snapshot])
				continue
			}
			d.slots[slot].committed.copyFrom(d.snapshots[snapshot])
			d.slots[slot].tentative = tentative{}
		}
		c.length.setInt(slot, length)
		return nil
	})
}
