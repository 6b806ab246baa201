package cache

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/kernels"
)

// Check verifies that the reference counts are those of tables, the page
// tables of all sequences, and that every page is free, used or idle, and
// nothing else. It is for tests and for builds with the tag invariants: its
// cost grows with all pages.
func (p *Pages) Check(tables [][]int32) error {
	refs := make([]int32, len(p.refs))
	for _, table := range tables {
		for _, page := range table {
			refs[page]++
		}
	}
	free := make([]bool, len(p.refs))
	for _, page := range p.free {
		if free[page] {
			return fmt.Errorf("page %d is on the free list twice", page)
		}
		free[page] = true
	}
	idle := make([]bool, len(p.refs))
	for _, page := range p.idlePages() {
		idle[page] = true
	}
	n := 0
	for i := range p.refs {
		if p.refs[i] != refs[i] {
			return fmt.Errorf("page %d has %d references, but is in %d page tables", i, p.refs[i], refs[i])
		}
		if want := refs[i] == 0 && !p.kept[i]; free[i] != want {
			return fmt.Errorf("page %d: on the free list %v, want %v", i, free[i], want)
		}
		if want := refs[i] == 0 && p.kept[i]; idle[i] != want || (p.next[i] >= 0) != want {
			return fmt.Errorf("page %d: on the idle list %v, want %v", i, idle[i], want)
		}
		if idle[i] {
			n++
		}
	}
	if n != p.idle {
		return fmt.Errorf("%d idle pages, counted as %d", n, p.idle)
	}
	pins := 0
	for i, on := range p.pinned {
		if on && !p.kept[i] {
			return fmt.Errorf("page %d is pinned and not kept", i)
		}
		if on {
			pins++
		}
	}
	if pins != p.pins {
		return fmt.Errorf("%d pinned pages, counted as %d", pins, p.pins)
	}
	return nil
}

// idlePages returns the idle pages in the order of eviction.
func (p *Pages) idlePages() []int32 {
	var out []int32
	for head := int32(len(p.refs)); int(head) < len(p.next); head++ {
		for i := p.next[head]; i != head && len(out) < len(p.refs); i = p.next[i] {
			out = append(out, i)
		}
	}
	return out
}

// Check verifies the tree: that it holds the kept pages and no others, that a
// page in use has all pages before it in use, that the end of a prompt is
// evicted before its beginning, and that all snapshots but reserved ones are
// free or at one node. It is for tests and for builds with the tag invariants.
func (t *Prefix) Check(reserved int) error {
	age := make(map[int32]int)
	for i, page := range t.pages.idlePages() {
		age[page] = i
	}
	for i, n := range t.byPage {
		page := int32(i)
		if kept := t.pages.kept[page]; kept != (n != nil) {
			return fmt.Errorf("page %d: kept %v, in the tree %v", page, kept, n != nil)
		}
		if n == nil {
			continue
		}
		if n.page != page || len(n.tokens) != kernels.PageTokens || n.depth != n.parent.depth+1 {
			return fmt.Errorf("page %d: its node has page %d, %d tokens, depth %d", page, n.page, len(n.tokens), n.depth)
		}
		if n.parent.child(n.hash, n.tokens) != n {
			return fmt.Errorf("page %d is not its parent's child", page)
		}
		if up := n.parent; up.depth == 0 {
			if t.roots[n.space] != up {
				return fmt.Errorf("page %d hangs from a root that is gone", page)
			}
		} else if t.byPage[up.page] != up {
			return fmt.Errorf("page %d hangs from an evicted page", page)
		} else if t.pages.refs[page] > 0 && t.pages.refs[up.page] == 0 {
			return fmt.Errorf("page %d is in use, and page %d before it is not", page, up.page)
		} else if t.pages.refs[up.page] == 0 && age[page] > age[up.page] {
			return fmt.Errorf("idle page %d would be evicted after page %d before it", page, up.page)
		}
		if up := n.parent; t.pages.pinned[page] != (n.pins > 0) || up.depth > 0 && up.pins < n.pins {
			return fmt.Errorf("page %d: pinned %v with %d pins, %d before it", page, t.pages.pinned[page], n.pins, up.pins)
		}
		if s := n.snapshot; s >= 0 && t.snaps.owner[s] != n {
			return fmt.Errorf("page %d has snapshot %d, which is another's", page, s)
		}
	}
	return t.snaps.check(t, reserved)
}

func (s *snapshots) check(t *Prefix, reserved int) error {
	attached := 0
	for id, n := range s.owner {
		if n == nil {
			continue
		}
		attached++
		if n.snapshot != int32(id) || t.byPage[n.page] != n || slices.Contains(s.free, int32(id)) {
			return fmt.Errorf("snapshot %d is free, or its node is gone or has snapshot %d", id, n.snapshot)
		}
	}
	if free := len(s.free); free+attached+reserved != len(s.owner) {
		return fmt.Errorf("%d snapshots, of which %d free, %d attached, %d reserved", len(s.owner), free, attached, reserved)
	}
	return nil
}
