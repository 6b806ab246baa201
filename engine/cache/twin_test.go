package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// entry is a page of the slow twin, with all tokens up to its end.
type entry struct {
	space    string
	tokens   []int32
	page     int32
	snapshot int // -1 is none
	used     int // when the snapshot was used last
	idle     int // when its last reference was dropped, or its last pin taken back
	pins     int
}

// before reports whether e goes before f: what is not pinned before what is, and
// else what is older.
func (e *entry) before(f *entry, older bool) bool {
	if (e.pins > 0) != (f.pins > 0) {
		return e.pins == 0
	}
	return older
}

// slowPrefix is the obvious twin of Prefix: a list of entries, searched.
type slowPrefix struct {
	opts    Options
	entries []*entry
	refs    map[int32]int
	free    []int // snapshots
	clock   int
}

func (s *slowPrefix) find(space string, tokens []int32) *entry {
	for _, e := range s.entries {
		if e.space == space && slices.Equal(e.tokens, tokens) {
			return e
		}
	}
	return nil
}

func (s *slowPrefix) lookup(space string, tokens []int32) Hit {
	hit := Hit{Snapshot: -1}
	var pages []int32
	for n := kernels.PageTokens; n < len(tokens); n += kernels.PageTokens {
		e := s.find(space, tokens[:n])
		if e == nil {
			break
		}
		hit.Matched = n
		pages = append(pages, e.page)
		if !s.opts.Recurrent || e.snapshot >= 0 {
			hit.Length, hit.Snapshot, hit.Pages = n, e.snapshot, slices.Clone(pages)
		}
	}
	return hit
}

// evict removes the entry that went idle first and returns its page.
func (s *slowPrefix) evict() (page int32, pinned bool) {
	var first *entry
	for _, e := range s.entries {
		if s.refs[e.page] == 0 && (first == nil || e.before(first, e.idle < first.idle)) {
			first = e
		}
	}
	if first == nil {
		return -1, false
	}
	if first.snapshot >= 0 {
		s.free = append(s.free, first.snapshot)
	}
	s.entries = slices.DeleteFunc(s.entries, func(e *entry) bool { return e == first })
	return first.page, first.pins > 0
}

func (s *slowPrefix) reserve() int {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	var first *entry
	for _, e := range s.entries {
		if e.snapshot >= 0 && (first == nil || e.before(first, e.used < first.used)) {
			first = e
		}
	}
	if first == nil {
		return -1
	}
	id := first.snapshot
	first.snapshot = -1
	return id
}

func (s *slowPrefix) tick() int { s.clock++; return s.clock }

// holder is a sequence: its tokens, and the pages that it has computed.
type holder struct {
	space  string
	tokens []int32
	path   Path
	pages  []int32
}

// pair drives the cache and its twin through the same operations.
type pair struct {
	t    *testing.T
	rng  *rand.Rand
	fast *Prefix
	slow *slowPrefix
	held []*holder
	pins []pin
	// evicted counts evictions, of which pinned of pinned pages.
	evicted, pinned int
}

// pin is a pinned path, as the cache has it and as the twin has.
type pin struct {
	path    Path
	entries []*entry
}

func (p *pair) alloc() (int32, bool) {
	if page, ok := p.fast.pages.Alloc(); ok {
		return page, true
	}
	want, pinned := p.slow.evict()
	require.Equal(p.t, want >= 0, p.fast.Evict())
	if want < 0 {
		return -1, false
	}
	p.evicted++
	if pinned {
		p.pinned++
	}
	page, ok := p.fast.pages.Alloc()
	require.True(p.t, ok)
	require.Equal(p.t, want, page, "the page evicted")
	return page, true
}

func (p *pair) begin(tokens []int32, space string) {
	want, got := p.slow.lookup(space, tokens), p.fast.Lookup(space, tokens)
	h := &holder{space: space, tokens: tokens, path: p.fast.Take(got), pages: slices.Clone(got.Pages)}
	got.path = Path{}
	require.Equal(p.t, want, got)
	for _, page := range want.Pages {
		p.slow.refs[page]++
	}
	if want.Snapshot >= 0 {
		p.slow.find(space, tokens[:want.Length]).used = p.slow.tick()
	}
	p.held = append(p.held, h)
}

func (p *pair) extend(h *holder) {
	i := len(h.pages)
	if (i+1)*kernels.PageTokens > len(h.tokens) {
		return
	}
	page, ok := p.alloc()
	if !ok {
		return
	}
	upTo := h.tokens[:(i+1)*kernels.PageTokens]
	e := p.slow.find(h.space, upTo)
	if e == nil {
		e = &entry{space: h.space, tokens: upTo, page: page, snapshot: -1}
		p.slow.entries = append(p.slow.entries, e)
	}
	p.slow.refs[e.page]++
	var got int32
	h.path, got = p.fast.Extend(h.path, upTo[i*kernels.PageTokens:], page)
	require.Equal(p.t, e.page, got)
	h.pages = append(h.pages, got)
	require.Equal(p.t, h.pages, h.path.Pages())
}

func (p *pair) end(i int) {
	h := p.held[i]
	for n := len(h.pages); n > 0; n-- {
		page := h.pages[n-1]
		p.fast.pages.Unref(page)
		if p.slow.refs[page]--; p.slow.refs[page] == 0 {
			p.slow.find(h.space, h.tokens[:n*kernels.PageTokens]).idle = p.slow.tick()
		}
	}
	p.held = slices.Delete(p.held, i, i+1)
}

func (p *pair) pin(h *holder) {
	keep := pin{path: h.path}
	for n := range h.pages {
		e := p.slow.find(h.space, h.tokens[:(n+1)*kernels.PageTokens])
		e.pins++
		keep.entries = append(keep.entries, e)
	}
	p.fast.Pin(h.path)
	p.pins = append(p.pins, keep)
}

func (p *pair) unpin(i int) {
	for _, e := range slices.Backward(p.pins[i].entries) {
		if e.pins--; e.pins == 0 && p.slow.refs[e.page] == 0 {
			e.idle = p.slow.tick()
		}
	}
	p.fast.Unpin(p.pins[i].path)
	p.pins = slices.Delete(p.pins, i, i+1)
}

func (p *pair) save(h *holder) {
	want := p.slow.reserve()
	got, ok := p.fast.ReserveSnapshot()
	require.Equal(p.t, want >= 0, ok)
	require.Equal(p.t, want, got)
	if !ok {
		return
	}
	e := p.slow.find(h.space, h.tokens[:len(h.pages)*kernels.PageTokens])
	switch {
	case p.rng.IntN(4) == 0: // never done
		p.slow.free = append(p.slow.free, got)
		p.fast.ReleaseSnapshot(got)
		return
	case e.snapshot >= 0:
		p.slow.free = append(p.slow.free, got)
	default:
		e.snapshot, e.used = got, p.slow.tick()
	}
	p.fast.Attach(h.path, got)
}

func TestPrefixAgainstTwin(t *testing.T) {
	evicted, pinned := 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		opts := Options{Recurrent: rng.IntN(2) > 0, Snapshots: rng.IntN(4)}
		pages := NewPages(2 + rng.IntN(20))
		p := &pair{t: t, rng: rng, fast: NewPrefix(pages, opts), slow: &slowPrefix{opts: opts, refs: map[int32]int{}}}
		for i := opts.Snapshots - 1; i >= 0; i-- {
			p.slow.free = append(p.slow.free, i)
		}
		if rng.IntN(2) > 0 { // few hashes, many collisions
			p.fast.hash = func(tokens []int32) uint64 { return uint64(tokens[0]) % 2 }
		}
		for range 400 {
			switch op := rng.IntN(9); {
			case op == 8 && len(p.pins) < 3 && len(p.held) > 0:
				p.pin(p.held[rng.IntN(len(p.held))])
			case op == 8 && len(p.pins) > 0:
				p.unpin(rng.IntN(len(p.pins)))
			case op == 0 && len(p.held) < 4:
				var kinds []int32
				for range rng.IntN(6) {
					kinds = append(kinds, int32(rng.IntN(3)))
				}
				p.begin(append(text(kinds...), make([]int32, rng.IntN(3))...), []string{"", "x"}[rng.IntN(2)])
			case op == 1 && len(p.held) > 0:
				p.end(rng.IntN(len(p.held)))
			case op == 2 && len(p.held) > 0:
				if h := p.held[rng.IntN(len(p.held))]; len(h.pages) > 0 {
					p.save(h)
				}
			case len(p.held) > 0:
				p.extend(p.held[rng.IntN(len(p.held))])
			}
			var tables [][]int32
			for _, h := range p.held {
				tables = append(tables, h.pages)
			}
			require.NoError(t, pages.Check(tables), "seed %d", seed)
			require.NoError(t, p.fast.Check(0), "seed %d", seed)
		}
		for len(p.held) > 0 {
			p.end(0)
		}
		require.Zero(t, pages.Used())
		require.Equal(t, len(p.slow.entries), pages.Idle())
		for p.fast.Evict() {
			page, _ := p.slow.evict()
			require.GreaterOrEqual(t, page, int32(0))
		}
		for len(p.pins) > 0 {
			p.unpin(0)
		}
		require.Zero(t, pages.Pinned())
		require.Equal(t, pages.Total(), pages.Free())
		require.Empty(t, p.fast.roots)
		evicted += p.evicted
		pinned += p.pinned
	}
	require.Greater(t, pinned, 100, "the programs hardly evict pinned pages")
	require.Greater(t, evicted, 1000, "the programs hardly evict")
}
