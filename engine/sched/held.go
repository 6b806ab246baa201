package sched

import "fmt"

// Hold takes a decoding sequence out of the plans, for a device loop that decodes it.
// It keeps its slot and pages, and is never preempted, until Resume; what it decodes is
// told by Advance.
func (c *Core) Hold(id int64) error {
	s, err := c.idle(id)
	switch {
	case err != nil:
		return err
	case !s.decoding:
		return fmt.Errorf("sequence %d is in prefill", id)
	}
	s.held = true
	return nil
}

// Resume brings a held sequence back to the plans.
func (c *Core) Resume(id int64) {
	if s := c.byID[id]; s != nil {
		s.held = false
	}
}

// Advance is Commit for one step of a held sequence, with any number of rows kept. It
// returns the operation that brings the slot's page table up to date, with no Pages if
// it is, or if the sequence has ended.
func (c *Core) Advance(r Result) (Op, error) {
	s, err := c.idle(r.ID)
	switch {
	case err != nil:
		return Op{}, err
	case !s.held:
		return Op{}, fmt.Errorf("sequence %d is not held: %w", r.ID, ErrResult)
	case !r.Done && len(r.Tokens) != r.Kept, len(r.Tokens) > r.Kept, len(s.known)+len(r.Tokens) > s.maxLen:
		return Op{}, fmt.Errorf("sequence %d: %d tokens for %d rows kept, %d known of at most %d: %w", r.ID, len(r.Tokens), r.Kept, len(s.known), s.maxLen, ErrResult)
	}
	s.length += r.Kept
	s.known = append(s.known, r.Tokens...)
	c.insert(s)
	op := Op{}
	if r.Done || len(s.known) == s.maxLen {
		c.retire(s)
	} else if s.written < len(s.pages) {
		op = s.setPages()
	}
	c.assert()
	return op, nil
}

// Unplanned reports whether a sequence waits or is in prefill: whether a plan would
// have something to do beside what is held.
func (c *Core) Unplanned() bool {
	if len(c.waiting) > 0 {
		return true
	}
	for _, s := range c.running {
		if !s.held {
			return true
		}
	}
	return false
}

// idle returns a resident sequence that is in no step in flight.
func (c *Core) idle(id int64) (*sequence, error) {
	s := c.byID[id]
	switch {
	case s == nil || s.slot < 0:
		return nil, fmt.Errorf("sequence %d is not running", id)
	case s.planned:
		return nil, fmt.Errorf("sequence %d: a step is in flight", id)
	}
	return s, nil
}
