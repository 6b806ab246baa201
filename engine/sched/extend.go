package sched

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Extend gives a running sequence pages for a length that it has not reached,
// for a device loop that runs without a plan per step. It returns the operation
// that writes the new entries of its page table (with no Pages if there are
// none). Between Commit and Plan only.
func (c *Core) Extend(id int64, length int) (Op, error) {
	s := c.byID[id]
	switch {
	case s == nil || s.slot < 0:
		return Op{}, fmt.Errorf("sequence %d is not running", id)
	case c.inFlight:
		return Op{}, fmt.Errorf("sequence %d: a step is in flight", id)
	case length > c.cfg.SlotPages*kernels.PageTokens:
		return Op{}, fmt.Errorf("sequence %d: length of %d tokens is %w of %d tokens", id, length, ErrTooLong, c.cfg.Context())
	case !c.extend(s, length):
		return Op{}, fmt.Errorf("sequence %d: no pages for a length of %d tokens", id, length)
	}
	op := Op{Kind: SetPages, ID: s.id, Slot: s.slot, First: s.written, Pages: append([]int32(nil), s.pages[s.written:]...)}
	s.written = len(s.pages)
	return op, nil
}
