package sched

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/kernels"
)

// assert panics, in builds with the tag invariants, when the core's state is
// not what sequence and the caches say that it must be.
func (c *Core) assert() {
	if !invariants {
		return
	}
	if err := c.verify(); err != nil {
		panic("sched: " + err.Error())
	}
}

// verify checks every invariant of the core and its caches.
func (c *Core) verify() error {
	if n := len(c.waiting) + len(c.running); n != len(c.byID) {
		return fmt.Errorf("%d sequences are waiting or running, %d are known", n, len(c.byID))
	}
	if limit := min(c.cfg.Slots, c.cfg.MaxSpans, c.cfg.MaxBatchTokens); len(c.running) > limit {
		return fmt.Errorf("%d sequences run, at most %d may", len(c.running), limit)
	}
	for i, s := range c.waiting {
		switch {
		case c.byID[s.id] != s:
			return fmt.Errorf("sequence %d waits, and is forgotten", s.id)
		case i > 0 && c.waiting[i-1].arrival >= s.arrival:
			return fmt.Errorf("sequence %d is out of the order of arrival", s.id)
		case s.slot >= 0 || s.length > 0 || len(s.pages) > 0 || s.decoding || s.saving >= 0 || s.planned:
			return fmt.Errorf("sequence %d waits, and has slot %d, length %d, %d pages", s.id, s.slot, s.length, len(s.pages))
		}
	}
	slots := slices.Clone(c.slots)
	var tables [][]int32
	saving := 0
	for _, s := range c.running {
		if err := c.verifyOne(s); err != nil {
			return fmt.Errorf("sequence %d: %w", s.id, err)
		}
		if s.saving >= 0 {
			saving++
		}
		slots = append(slots, s.slot)
		tables = append(tables, s.pages)
	}
	slices.Sort(slots)
	for i, slot := range slots {
		if len(slots) != c.cfg.Slots || slot != i {
			return fmt.Errorf("slots free and taken are %v, want each of %d once", slots, c.cfg.Slots)
		}
	}
	if err := c.pages.Check(tables); err != nil {
		return err
	}
	if c.prefix == nil {
		return nil
	}
	return c.prefix.Check(saving)
}

func (c *Core) verifyOne(s *sequence) error {
	depth := s.path.Depth()
	switch {
	case c.byID[s.id] != s:
		return fmt.Errorf("runs, and is forgotten")
	case s.decoding && s.length != len(s.known)-1:
		return fmt.Errorf("decodes at length %d with %d tokens known", s.length, len(s.known))
	case !s.decoding && s.length >= len(s.known):
		return fmt.Errorf("in prefill at length %d with %d tokens known", s.length, len(s.known))
	case len(s.known) >= s.maxLen:
		return fmt.Errorf("runs with %d tokens known of at most %d", len(s.known), s.maxLen)
	case s.length > len(s.pages)*kernels.PageTokens || len(s.pages) > c.cfg.SlotPages:
		return fmt.Errorf("length %d in %d pages of at most %d", s.length, len(s.pages), c.cfg.SlotPages)
	case s.planned && s.written != len(s.pages):
		return fmt.Errorf("planned with %d of %d pages in its page table", s.written, len(s.pages))
	case !slices.Equal(s.path.Pages(), s.pages[:depth]):
		return fmt.Errorf("pages %v are not the tree's %v", s.pages, s.path.Pages())
	case c.prefix != nil && depth != s.length/kernels.PageTokens:
		return fmt.Errorf("length %d with %d pages in the tree", s.length, depth)
	case s.planned != c.inPlan(s):
		return fmt.Errorf("planned %v, and the plan has it %v", s.planned, !s.planned)
	case len(s.borders) > 0 && s.borders[0] <= s.length:
		return fmt.Errorf("border %d is behind length %d", s.borders[0], s.length)
	}
	return nil
}

func (c *Core) inPlan(s *sequence) bool { return c.inFlight && slices.Contains(c.planned, s) }
