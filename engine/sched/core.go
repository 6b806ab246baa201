package sched

import (
	"cmp"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine/cache"
	"exacta.dev/exacta/kernels"
)

// Core is the scheduler. It is driven by calls, from one goroutine at a time:
// Submit and Cancel at any time, Plan and Commit in turns.
type Core struct {
	cfg    Config
	policy Policy
	pages  *cache.Pages
	prefix *cache.Prefix // nil without a prefix cache

	byID     map[int64]*sequence // waiting and running; only for look-ups
	waiting  []*sequence         // in order of arrival
	running  []*sequence         // in order of admission
	slots    []int               // free ones, a stack, lowest on top at first
	arrivals int64
	step     int64
	outputs  outputs
	sessions sessions

	// The step in flight: planned and not committed.
	inFlight bool
	items    []Item
	planned  []*sequence // of the items
}

// New returns a core with nothing to do.
func New(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.fill()
	policy, err := policyByName(cfg.Policy)
	if err != nil {
		return nil, err
	}
	cfg.Policy = policy.Name()
	c := &Core{
		cfg: cfg, policy: policy, pages: cache.NewPages(cfg.Pages),
		byID: make(map[int64]*sequence),
	}
	if cfg.PrefixCache {
		c.prefix = cache.NewPrefix(c.pages, cache.Options{
			Recurrent: cfg.Recurrent, Snapshots: cfg.Snapshots,
		})
	}
	for i := cfg.Slots - 1; i >= 0; i-- {
		c.slots = append(c.slots, i)
	}
	return c, nil
}

// Config returns the configuration, with defaults filled in.
func (c *Core) Config() Config { return c.cfg }

// Len returns the number of sequences that are waiting or running.
func (c *Core) Len() int { return len(c.byID) }

// Known returns the known tokens of a sequence (prompt and output so far), or
// nil if there is none of this id. The slice is the core's: it is to be read,
// and only until the next call of Commit.
func (c *Core) Known(id int64) []int32 {
	if s := c.byID[id]; s != nil {
		return s.known
	}
	return nil
}

// Submit adds a request at the end of the queue. A request that could never
// be served is refused: the error is one of ErrEmpty, ErrTooLong, ErrDrafts and
// ErrDuplicate, wrapped with what would be right.
func (c *Core) Submit(r Request) error {
	limit := c.cfg.Context()
	switch {
	case len(r.Prompt) == 0:
		return fmt.Errorf("request %d: %w", r.ID, ErrEmpty)
	case len(r.Prompt) >= limit:
		return fmt.Errorf("request %d: prompt of %d tokens is %w of %d tokens, want at most %d",
			r.ID, len(r.Prompt), ErrTooLong, limit, limit-1)
	case r.MaxLen > limit:
		return fmt.Errorf("request %d: length of %d tokens is %w of %d tokens", r.ID, r.MaxLen, ErrTooLong, limit)
	case r.MaxLen <= len(r.Prompt):
		return fmt.Errorf("request %d: prompt of %d tokens is %w of %d tokens that the request asks for",
			r.ID, len(r.Prompt), ErrTooLong, r.MaxLen)
	case r.K < 0 || r.K >= kernels.WindowTokens:
		return fmt.Errorf("request %d: %w: %d, want 0 to %d", r.ID, ErrDrafts, r.K, kernels.WindowTokens-1)
	case c.byID[r.ID] != nil:
		return fmt.Errorf("request %d: %w", r.ID, ErrDuplicate)
	}
	s := &sequence{
		id: r.ID, arrival: c.arrivals, maxLen: r.MaxLen, most: r.K, k: r.K, space: r.Space,
		fixed: r.Fixed, priority: r.Priority, prompt: len(r.Prompt),
		known: slices.Clone(r.Prompt), since: c.step,
	}
	s.session = c.sessions.open(r.Space, r.Session, c.arrivals)
	s.forget()
	c.arrivals++
	c.byID[s.id] = s
	c.waiting = append(c.waiting, s)
	c.assert()
	return nil
}

// Cancel ends a sequence. Its memory is free for the next plan; if it is in the
// step in flight, its result is still expected by Commit. Cancel reports
// whether there was such a sequence.
func (c *Core) Cancel(id int64) bool {
	s := c.byID[id]
	if s == nil || s.gone {
		return false
	}
	if s.planned {
		s.gone = true
		return true
	}
	c.retire(s)
	c.assert()
	return true
}

// retire forgets a finished or cancelled sequence.
func (c *Core) retire(s *sequence) {
	c.closeSession(s)
	if s.slot >= 0 {
		c.evacuate(s)
	} else {
		c.waiting = remove(c.waiting, s)
	}
	delete(c.byID, s.id)
}

// evacuate takes the memory of a running sequence back. Pages go last first,
// so that the prefix cache evicts the end of a prompt before its beginning.
func (c *Core) evacuate(s *sequence) {
	for _, p := range slices.Backward(s.pages) {
		c.pages.Unref(p)
	}
	c.slots = append(c.slots, s.slot)
	c.running = remove(c.running, s)
	s.forget()
}

// preempt evacuates a running sequence and puts it back where its arrival
// says.
func (c *Core) preempt(s *sequence) {
	c.evacuate(s)
	s.preemptions++
	s.since = c.step
	at, _ := slices.BinarySearchFunc(c.waiting, s.arrival, func(w *sequence, a int64) int {
		return cmp.Compare(w.arrival, a)
	})
	c.waiting = slices.Insert(c.waiting, at, s)
}

// alloc takes a page, evicting one from the prefix cache if none is free.
func (c *Core) alloc() (int32, bool) {
	if p, ok := c.pages.Alloc(); ok {
		return p, true
	}
	if c.prefix == nil || !c.prefix.Evict() {
		return -1, false
	}
	return c.pages.Alloc()
}

// extend gives a sequence pages for n positions, as far as there are pages. It
// reports whether there were enough.
func (c *Core) extend(s *sequence, n int) bool {
	for len(s.pages) < pagesFor(n) {
		p, ok := c.alloc()
		if !ok {
			return false
		}
		s.pages = append(s.pages, p)
	}
	return true
}

func remove(list []*sequence, s *sequence) []*sequence {
	return slices.DeleteFunc(list, func(x *sequence) bool { return x == s })
}
