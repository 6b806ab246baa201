package cache

import "fmt"

// Pages hands out the pages of KV memory and counts who uses them. A page is
// in one of three states:
//
//	free   no reference, not kept: on the free list
//	used   one reference per sequence that has it in its page table
//	idle   no reference, but kept by the prefix cache: its contents may be
//	       wanted again; waits in the order of release to be evicted
//
// The free list is a stack: a fresh allocator hands out 0, 1, 2, ..., later
// the page freed last comes first. Idle pages are listed from the one released
// longest ago; those that are pinned stand in a list of their own, behind the
// others.
//
// A call with a page that is not in the state it needs is a broken invariant
// of the caller, and panics.
type Pages struct {
	refs []int32
	kept []bool
	free []int32
	// prev and next link the idle pages in two rings; entry len(refs) is the
	// head of the one, entry len(refs)+1 that of pinned pages. A page that is
	// not idle has next = -1.
	prev, next []int32
	idle       int
	pinned     []bool
	pins       int // pinned pages
}

// NewPages returns an allocator of n pages, all free.
func NewPages(n int) *Pages {
	p := &Pages{
		refs: make([]int32, n), kept: make([]bool, n), free: make([]int32, n),
		prev: make([]int32, n+2), next: make([]int32, n+2), pinned: make([]bool, n),
	}
	for i := range n {
		p.free[i] = int32(n - 1 - i)
		p.next[i] = -1
	}
	for head := range int32(2) {
		p.prev[int32(n)+head], p.next[int32(n)+head] = int32(n)+head, int32(n)+head
	}
	return p
}

// Total returns the number of pages.
func (p *Pages) Total() int { return len(p.refs) }

// Free returns the number of free pages.
func (p *Pages) Free() int { return len(p.free) }

// Idle returns the number of idle pages: those that eviction can free.
func (p *Pages) Idle() int { return p.idle }

// Used returns the number of pages with references.
func (p *Pages) Used() int { return len(p.refs) - len(p.free) - p.idle }

// Refs returns the number of references to a page.
func (p *Pages) Refs(page int32) int { return int(p.refs[page]) }

// Kept reports whether the prefix cache keeps a page.
func (p *Pages) Kept(page int32) bool { return p.kept[page] }

// Alloc takes a page off the free list, with one reference. It reports false
// when no page is free; idle pages are not touched.
func (p *Pages) Alloc() (int32, bool) {
	n := len(p.free)
	if n == 0 {
		return -1, false
	}
	page := p.free[n-1]
	p.free = p.free[:n-1]
	p.refs[page] = 1
	return page, true
}

// Ref adds a reference to a used or idle page.
func (p *Pages) Ref(page int32) {
	if p.refs[page] == 0 {
		if !p.kept[page] {
			panic(fmt.Sprintf("cache: reference to free page %d", page))
		}
		p.unlink(page)
	}
	p.refs[page]++
}

// Unref drops a reference to a used page. With its last reference the page
// becomes free, or idle if it is kept.
func (p *Pages) Unref(page int32) {
	if p.refs[page] == 0 {
		panic(fmt.Sprintf("cache: page %d released more often than taken", page))
	}
	p.refs[page]--
	if p.refs[page] > 0 {
		return
	}
	if p.kept[page] {
		p.link(page)
		return
	}
	p.free = append(p.free, page)
}

// keep marks a used page as part of the prefix cache.
func (p *Pages) keep(page int32) {
	if p.refs[page] == 0 || p.kept[page] {
		panic(fmt.Sprintf("cache: page %d kept twice or while free", page))
	}
	p.kept[page] = true
}

// drop frees an idle page.
func (p *Pages) drop(page int32) {
	p.unlink(page)
	p.pin(page, false)
	p.kept[page] = false
	p.free = append(p.free, page)
}

// pin marks a page as pinned or not; one that is idle goes to the end of the
// list that it then belongs to.
func (p *Pages) pin(page int32, on bool) {
	if p.pinned[page] == on {
		return
	}
	idle := p.next[page] >= 0
	if idle {
		p.unlink(page)
	}
	p.pinned[page] = on
	if on {
		p.pins++
	} else {
		p.pins--
	}
	if idle {
		p.link(page)
	}
}

// Pinned returns the number of pinned pages.
func (p *Pages) Pinned() int { return p.pins }

// oldest returns the idle page that was released longest ago, one that is not
// pinned if there is any.
func (p *Pages) oldest() (int32, bool) {
	head := int32(len(p.refs))
	if p.next[head] == head {
		head++
	}
	return p.next[head], p.idle > 0
}

func (p *Pages) link(page int32) {
	head := int32(len(p.refs))
	if p.pinned[page] {
		head++
	}
	last := p.prev[head]
	p.next[last], p.prev[page] = page, last
	p.next[page], p.prev[head] = head, page
	p.idle++
}

func (p *Pages) unlink(page int32) {
	if p.next[page] < 0 {
		panic(fmt.Sprintf("cache: page %d is not idle", page))
	}
	p.next[p.prev[page]] = p.next[page]
	p.prev[p.next[page]] = p.prev[page]
	p.next[page] = -1
	p.idle--
}
