package sched

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Extend gives a running sequence pages for length positions, for a device loop
// that runs many steps without a plan for each. It returns the operation that
// brings the slot's page table up to date, with no Pages if it is. The pages
// stay the sequence's until it ends. Extend belongs between Commit and Plan; it
// never preempts, and fails when too few pages are unused.
func (c *Core) Extend(id int64, length int) (Op, error) {
	s, err := c.idle(id)
	switch {
	case err != nil:
		return Op{}, err
	case length > c.cfg.SlotPages*kernels.PageTokens:
		return Op{}, fmt.Errorf("sequence %d: length of %d tokens is %w of %d tokens", id, length, ErrTooLong, c.cfg.Context())
	case !c.extend(s, length):
		return Op{}, fmt.Errorf("sequence %d: too few pages are unused for a length of %d tokens", id, length)
	}
	c.assert()
	return s.setPages(), nil
}
