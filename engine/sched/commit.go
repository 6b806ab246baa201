package sched

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// ErrResult: the results given to Commit do not belong to the plan.
var ErrResult = errors.New("result does not fit the plan")

// Commit takes the outcome of the step in flight: one result per item, in the
// plan's order. Lengths advance, full pages enter the prefix cache, sequences
// that are done (or at their MaxLen, or cancelled) are forgotten. On an error,
// which wraps ErrResult, nothing has changed.
func (c *Core) Commit(results []Result) error {
	if err := c.check(results); err != nil {
		return err
	}
	for i, r := range results {
		s, it := c.planned[i], c.items[i]
		s.planned = false
		s.length += r.Kept
		s.known = append(s.known, r.Tokens...)
		s.decoding = it.Last
		c.insert(s)
		if s.saving >= 0 {
			if r.Kept == it.Rows {
				c.prefix.Attach(s.path, s.saving)
			} else {
				c.prefix.ReleaseSnapshot(s.saving)
			}
			s.saving = -1
		}
		if r.Done || s.gone || len(s.known) == s.maxLen {
			if r.Kept > 0 && !s.gone && !s.fixed {
				c.outputs.add(len(s.known) - s.prompt)
			}
			c.retire(s)
		}
	}
	c.inFlight, c.items, c.planned = false, nil, c.planned[:0]
	c.assert()
	return nil
}

// insert puts the pages that a step filled into the prefix cache. Rows whose
// tokens were cut at a stop are not in it.
func (c *Core) insert(s *sequence) {
	if c.prefix == nil {
		return
	}
	full := min(s.length, len(s.known)) / kernels.PageTokens
	for i := s.path.Depth(); i < full; i++ {
		tokens := s.known[i*kernels.PageTokens : (i+1)*kernels.PageTokens]
		var page int32
		s.path, page = c.prefix.Extend(s.path, tokens, s.pages[i])
		if page != s.pages[i] {
			s.pages[i] = page
			s.written = min(s.written, i)
		}
	}
}

func (c *Core) check(results []Result) error {
	if !c.inFlight {
		return fmt.Errorf("commit without a plan: %w", ErrResult)
	}
	if len(results) != len(c.items) {
		return fmt.Errorf("commit of step %d: %d results for %d items: %w", c.step-1, len(results), len(c.items), ErrResult)
	}
	for i, r := range results {
		if err := c.checkOne(c.planned[i], c.items[i], r); err != nil {
			return fmt.Errorf("commit of step %d, item %d, sequence %d: %w: %w", c.step-1, i, c.items[i].ID, err, ErrResult)
		}
	}
	return nil
}

func (c *Core) checkOne(s *sequence, it Item, r Result) error {
	if r.ID != it.ID {
		return fmt.Errorf("result of sequence %d", r.ID)
	}
	// The least and most rows and tokens of an item that is not done.
	lo, hi, tokens := 1, 1+it.K, r.Kept
	if it.Phase == Prefill {
		lo, hi, tokens = it.Rows, it.Rows, 0
		if it.Last {
			tokens = 1
		}
	}
	if r.Done || s.gone {
		lo, tokens = 0, min(tokens, len(r.Tokens))
	}
	switch {
	case r.Kept < lo || r.Kept > hi:
		return fmt.Errorf("%d rows kept, want %d to %d", r.Kept, lo, hi)
	case len(r.Tokens) != tokens:
		return fmt.Errorf("%d tokens for %d rows kept, want %d", len(r.Tokens), r.Kept, tokens)
	case len(s.known)+len(r.Tokens) > s.maxLen:
		return fmt.Errorf("%d tokens known and %d new, want at most %d", len(s.known), len(r.Tokens), s.maxLen)
	}
	return nil
}
