package sched

import "fmt"

// Drafts sets how many drafts a sequence wants in the steps to come, at most the
// K of its request. It belongs between Commit and Plan.
func (c *Core) Drafts(id int64, k int) error {
	s := c.byID[id]
	switch {
	case s == nil:
		return fmt.Errorf("no sequence %d", id)
	case c.inFlight:
		return fmt.Errorf("sequence %d: a step is in flight", id)
	case k < 0 || k > s.most:
		return fmt.Errorf("sequence %d wants %d drafts; %w: 0..%d", id, k, ErrDrafts, s.most)
	}
	s.k = k
	return nil
}

// Decoding calls each for the sequences that will decode in the next step, in
// order of admission, unless they are preempted for want of pages, with the most
// drafts that they can use.
func (c *Core) Decoding(each func(id int64, most int)) {
	for _, s := range c.running {
		if s.decoding {
			each(s.id, max(0, min(s.most, s.maxLen-len(s.known)-1)))
		}
	}
}
