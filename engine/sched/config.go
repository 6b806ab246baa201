package sched

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Config is the shape of the memory that a Core schedules for, and its limits
// on one step. All fields are required unless a default is given.
type Config struct {
	// Slots is the number of sequences that can be resident at once.
	Slots int
	// Pages is the number of KV pages, of kernels.PageTokens positions each.
	Pages int
	// SlotPages is the length of a slot's page table, in pages.
	SlotPages int
	// MaxBatchTokens bounds the rows of a step: prefill rows, pending tokens
	// and drafts together.
	MaxBatchTokens int
	// Chunk bounds the prefill rows of one sequence in one step.
	Chunk int
	// MaxSpans bounds the spans of a step; 0 means Slots, as does more. A
	// sequence is admitted when there is a span and a row for it, so at most
	// min(Slots, MaxSpans, MaxBatchTokens) run.
	MaxSpans int
	// Lookahead is the number of positions after the rows of a span whose
	// pages must be there too, because a device drafter writes to them.
	Lookahead int
	// PrefixCache keeps the pages of computed tokens for later prompts.
	PrefixCache bool
	// Recurrent says that a prefix hit needs a snapshot: the model has
	// recurrent layers, or a drafter has a state of its own.
	Recurrent bool
	// Snapshots is the number of snapshots in the caches. With Recurrent and
	// none, the prefix cache never hits.
	Snapshots int
	// Policy names the order of admission; empty means "fcfs". See
	// Policies.
	Policy string
	// PrefillShare is the percentage of a step's rows, those of pending tokens
	// apart, that prefill may have even if drafts want them, 1 to 100. Default
	// 50.
	PrefillShare int
	// Expect is the length of an output, in tokens, that admission counts on
	// before it has seen enough outputs end to know better. Default 256; -1
	// admits by what is known now alone.
	Expect int
	// Sessions is the number of sessions whose pages are pinned in the prefix
	// cache between their requests. Default 64.
	Sessions int
}

// fill puts defaults in.
func (c *Config) fill() {
	for _, d := range []struct {
		v   *int
		def int
	}{{&c.PrefillShare, 50}, {&c.Expect, 256}, {&c.Sessions, 64}, {&c.MaxSpans, c.Slots}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	c.MaxSpans = min(c.MaxSpans, c.Slots)
}

// Context returns the largest Request.MaxLen that the configuration can serve,
// in tokens.
func (c Config) Context() int {
	return min(c.SlotPages, c.Pages)*kernels.PageTokens - c.Lookahead
}

// Validate reports every field that is out of range.
func (c Config) Validate() error {
	var errs []error
	least := func(name string, v, least int) {
		if v < least {
			errs = append(errs, fmt.Errorf("sched config: %s is %d, want at least %d", name, v, least))
		}
	}
	least("Slots", c.Slots, 1)
	least("Pages", c.Pages, 1)
	least("SlotPages", c.SlotPages, 1)
	least("MaxBatchTokens", c.MaxBatchTokens, 1)
	least("Chunk", c.Chunk, 1)
	least("MaxSpans", c.MaxSpans, 0)
	least("Lookahead", c.Lookahead, 0)
	least("Snapshots", c.Snapshots, 0)
	least("PrefillShare", c.PrefillShare, 0)
	least("Expect", c.Expect, -1)
	least("Sessions", c.Sessions, 0)
	if c.PrefillShare > 100 {
		errs = append(errs, fmt.Errorf("sched config: PrefillShare is %d, want at most 100", c.PrefillShare))
	}
	if len(errs) == 0 {
		if n := c.Context(); n < 2 {
			errs = append(errs, fmt.Errorf("sched config: Lookahead of %d leaves a context of %d tokens, want at least 2", c.Lookahead, n))
		}
	}
	if _, err := policyByName(c.Policy); err != nil {
		errs = append(errs, fmt.Errorf("sched config: %w", err))
	}
	return errors.Join(errs...)
}
