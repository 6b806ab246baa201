package cache

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/kernels"
)

// Options says what a prefix cache keeps.
type Options struct {
	// Recurrent: a hit needs a snapshot at its end, because the model has
	// recurrent layers (or a drafter has a state of its own).
	Recurrent bool
	// Snapshots is the number of snapshots that the backend's caches hold.
	Snapshots int
}

// Prefix is the prefix cache: a tree of full pages, keyed by their tokens,
// with recurrent snapshots at some of the page borders.
type Prefix struct {
	opts   Options
	pages  *Pages
	roots  map[string]*node
	byPage []*node // the node that keeps a page
	snaps  snapshots
	hash   func([]int32) uint64
}

// NewPrefix returns an empty prefix cache over pages.
func NewPrefix(pages *Pages, opts Options) *Prefix {
	return &Prefix{
		opts: opts, pages: pages, roots: make(map[string]*node),
		byPage: make([]*node, pages.Total()), snaps: newSnapshots(opts.Snapshots),
		hash: hashTokens,
	}
}

// Hit is the answer of Lookup. It stays true until the cache is next changed.
type Hit struct {
	// Length is the number of tokens whose results are in the cache and can
	// be used: len(Pages) pages.
	Length int
	// Pages are the pages of those tokens, in order. The caller owns the
	// slice.
	Pages []int32
	// Snapshot is the recurrent snapshot at Length; -1 if the cache is not
	// recurrent or there is no hit.
	Snapshot int
	// Matched is the number of tokens whose pages are in the cache, at least
	// Length. Where it is more, only a snapshot is missing: a prompt was
	// here before, and a snapshot at Matched will serve the next one.
	Matched int

	path Path
}

// Path is a sequence's place in the tree: the node of its last page that the
// cache keeps. The zero Path with a space is the root.
type Path struct {
	space string
	node  *node
}

// Root returns the path of no pages in a space.
func Root(space string) Path { return Path{space: space} }

// Depth returns the number of pages on the path.
func (p Path) Depth() int {
	if p.node == nil {
		return 0
	}
	return p.node.depth
}

// Pages returns the pages on the path, in order.
func (p Path) Pages() []int32 {
	pages := make([]int32, p.Depth())
	for n := p.node; n != nil && n.depth > 0; n = n.parent {
		pages[n.depth-1] = n.page
	}
	return pages
}

// Lookup returns the longest usable hit for the tokens of a prompt within a
// space. At least one token is left to compute, so the hit is shorter than the
// prompt. Lookup changes nothing: a hit that is used must be taken by Take.
func (t *Prefix) Lookup(space string, tokens []int32) Hit {
	hit := Hit{Snapshot: -1, path: Root(space)}
	n := t.roots[space]
	if n == nil {
		return hit
	}
	var best *node
	for i := range fullPages(len(tokens) - 1) {
		page := tokens[i*kernels.PageTokens : (i+1)*kernels.PageTokens]
		c := n.child(t.hash(page), page)
		if c == nil {
			break
		}
		n = c
		if !t.opts.Recurrent || c.snapshot >= 0 {
			best = c
		}
	}
	hit.Matched = n.depth * kernels.PageTokens
	if best == nil {
		return hit
	}
	hit.Length = best.depth * kernels.PageTokens
	hit.Snapshot = int(best.snapshot)
	hit.path.node = best
	hit.Pages = hit.path.Pages()
	return hit
}

// Take gives the caller a reference to each page of a hit, renews the
// snapshot, and returns the sequence's path.
func (t *Prefix) Take(h Hit) Path {
	for _, p := range h.Pages {
		t.pages.Ref(p)
	}
	if h.Snapshot >= 0 {
		t.snaps.touch(int32(h.Snapshot))
	}
	return h.path
}

// Extend puts the next full page of a sequence into the cache: the page after
// path, with its kernels.PageTokens tokens. The caller has a reference to the
// page and to every page on the path. If the cache has a page of these tokens
// already, its contents are the same bits: the caller's reference moves to
// that page. Extend returns the longer path and the page that the caller now
// has.
func (t *Prefix) Extend(path Path, tokens []int32, page int32) (Path, int32) {
	if len(tokens) != kernels.PageTokens {
		panic(fmt.Sprintf("cache: %d tokens for a page of %d", len(tokens), kernels.PageTokens))
	}
	n := path.node
	if n == nil {
		n = t.root(path.space)
	} else if invariants && (t.byPage[n.page] != n || t.pages.refs[n.page] == 0) {
		panic(fmt.Sprintf("cache: path ends in page %d, which its sequence has let go", n.page))
	}
	hash := t.hash(tokens)
	if c := n.child(hash, tokens); c != nil {
		if c.page != page {
			t.pages.Ref(c.page)
			t.pages.Unref(page)
		}
		return Path{path.space, c}, c.page
	}
	c := &node{
		parent: n, space: path.space, tokens: slices.Clone(tokens), hash: hash,
		page: page, depth: n.depth + 1, snapshot: -1,
	}
	n.add(c)
	t.pages.keep(page)
	t.byPage[page] = c
	return Path{path.space, c}, page
}

// Pin keeps the pages of a path, and the snapshots at their ends, from eviction
// for as long as anything else can be evicted: a session whose next prompt will
// begin with them goes on later. The caller has a reference to each page of the
// path, and takes the pin back by Unpin.
func (t *Prefix) Pin(path Path) {
	for n := path.node; n != nil && n.depth > 0; n = n.parent {
		if invariants && t.pages.refs[n.page] == 0 {
			panic(fmt.Sprintf("cache: pin of page %d, which its sequence has let go", n.page))
		}
		n.pins++
		t.pages.pin(n.page, true)
	}
}

// Unpin takes a pin back. Pages that no other pin keeps are evicted as if they
// had been released now.
func (t *Prefix) Unpin(path Path) {
	for n := path.node; n != nil && n.depth > 0; n = n.parent {
		if n.pins--; n.pins == 0 && t.byPage[n.page] == n {
			t.pages.pin(n.page, false)
		}
	}
}

// Evict frees the idle page that was released longest ago, with its snapshot;
// a pinned one only when all idle ones are. It reports false when no page is
// idle.
func (t *Prefix) Evict() bool {
	page, ok := t.pages.oldest()
	if !ok {
		return false
	}
	n := t.byPage[page]
	if n == nil || n.count > 0 {
		panic(fmt.Sprintf("cache: idle page %d is not a leaf", page))
	}
	if n.snapshot >= 0 {
		t.snaps.release(n.snapshot)
	}
	n.parent.remove(n)
	if n.parent.depth == 0 && n.parent.count == 0 {
		delete(t.roots, n.space)
	}
	t.byPage[page] = nil
	t.pages.drop(page)
	return true
}

// ReserveSnapshot takes a snapshot out of the budget for a Save to come,
// evicting the one that was used longest ago when all are taken, a pinned one
// only when all are. It reports
// false when all are reserved, or there are none. The caller gives it back by
// Attach or ReleaseSnapshot.
func (t *Prefix) ReserveSnapshot() (int, bool) {
	id, owner, ok := t.snaps.reserve()
	if owner != nil {
		owner.snapshot = -1
	}
	return int(id), ok
}

// Attach puts a saved snapshot at the end of a path. If there is one already,
// the new one is released.
func (t *Prefix) Attach(p Path, snapshot int) {
	if p.node == nil {
		panic("cache: snapshot at length 0")
	}
	if p.node.snapshot >= 0 {
		t.snaps.release(int32(snapshot))
		return
	}
	p.node.snapshot = int32(snapshot)
	t.snaps.attach(int32(snapshot), p.node)
}

// ReleaseSnapshot gives a reserved snapshot back unused.
func (t *Prefix) ReleaseSnapshot(snapshot int) { t.snaps.release(int32(snapshot)) }

func (t *Prefix) root(space string) *node {
	n := t.roots[space]
	if n == nil {
		n = &node{space: space, page: -1, snapshot: -1}
		t.roots[space] = n
	}
	return n
}
