package cache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// text returns n tokens that begin alike for equal kinds.
func text(kinds ...int32) []int32 {
	var out []int32
	for _, k := range kinds {
		for i := range kernels.PageTokens {
			out = append(out, k*1000+int32(i))
		}
	}
	return out
}

// fill makes a sequence compute tokens: it takes the hit, allocates the rest
// and puts every full page into the cache.
func fill(t *testing.T, c *Prefix, space string, tokens []int32) (Path, []int32) {
	t.Helper()
	hit := c.Lookup(space, tokens)
	path, pages := c.Take(hit), hit.Pages
	for len(pages) < len(tokens)/kernels.PageTokens {
		page, ok := c.pages.Alloc()
		require.True(t, ok)
		i := len(pages)
		path, page = c.Extend(path, tokens[i*kernels.PageTokens:(i+1)*kernels.PageTokens], page)
		pages = append(pages, page)
	}
	return path, pages
}

func release(p *Pages, pages []int32) {
	for i := len(pages) - 1; i >= 0; i-- {
		p.Unref(pages[i])
	}
}

func TestLookup(t *testing.T) {
	p := NewPages(8)
	c := NewPrefix(p, Options{})
	_, pages := fill(t, c, "", text(1, 2, 3))
	require.Equal(t, []int32{0, 1, 2}, pages)

	hit := c.Lookup("", append(text(1, 2, 3), 5))
	require.Equal(t, []int32{0, 1, 2}, hit.Pages)
	require.Equal(t, 192, hit.Length)
	require.Equal(t, 192, hit.Matched)
	require.Equal(t, -1, hit.Snapshot)

	require.Equal(t, 128, c.Lookup("", text(1, 2, 3)).Length, "a token is left to compute")
	require.Equal(t, 64, c.Lookup("", text(1, 3, 3)).Length, "the second page differs")
	almost := append(text(1, 2), 5)
	almost[127]++
	require.Equal(t, 64, c.Lookup("", almost).Length, "the last token of the second page differs")
	require.Zero(t, c.Lookup("other", text(1, 2, 3)).Length, "another space")
	require.Zero(t, c.Lookup("", text(2, 3)).Length, "pages are found by all tokens before them")
	require.Zero(t, c.Lookup("", []int32{1}).Length)
}

// TestHashOnlyFinds: with all hashes equal, hits are the same.
func TestHashOnlyFinds(t *testing.T) {
	p := NewPages(8)
	c := NewPrefix(p, Options{})
	c.hash = func([]int32) uint64 { return 0 }
	fill(t, c, "", text(1, 2))
	fill(t, c, "", text(3, 2))
	_, pages := fill(t, c, "", text(1, 4))
	require.Equal(t, pages, c.Lookup("", append(text(1, 4), 0)).Pages)
	require.Equal(t, []int32{2, 3}, c.Lookup("", append(text(3, 2), 0)).Pages)
	require.Zero(t, c.Lookup("", text(2, 2)).Length)
}

// TestExtendShares: two sequences that computed the same page end up with one.
func TestExtendShares(t *testing.T) {
	p := NewPages(4)
	c := NewPrefix(p, Options{})
	a, _ := p.Alloc()
	b, _ := p.Alloc()
	pathA, got := c.Extend(Root(""), text(1), a)
	require.Equal(t, a, got)
	pathB, got := c.Extend(Root(""), text(1), b)
	require.Equal(t, a, got)
	require.Equal(t, pathA, pathB)
	require.Equal(t, 2, p.Refs(a))
	require.Zero(t, p.Refs(b))
	require.Equal(t, 3, p.Free())
	require.NoError(t, p.Check([][]int32{{a}, {a}}))
}

func TestRecurrentHits(t *testing.T) {
	p := NewPages(8)
	c := NewPrefix(p, Options{Recurrent: true, Snapshots: 2})
	path, pages := fill(t, c, "", text(1, 2, 3))
	long := append(text(1, 2, 3), 9)
	hit := c.Lookup("", long)
	require.Zero(t, hit.Length, "no snapshot")
	require.Equal(t, 192, hit.Matched, "the pages are there")

	id, ok := c.ReserveSnapshot()
	require.True(t, ok)
	require.NoError(t, c.Check(1))
	c.Attach(Path{"", path.node.parent}, id)
	hit = c.Lookup("", long)
	require.Equal(t, 128, hit.Length)
	require.Equal(t, pages[:2], hit.Pages)
	require.Equal(t, id, hit.Snapshot)
	require.Equal(t, 192, hit.Matched)
	require.Zero(t, c.Lookup("", text(1, 2)).Length, "the snapshot is at the whole prompt's end")
	require.NoError(t, c.Check(0))
}

func TestSnapshotBudget(t *testing.T) {
	p := NewPages(8)
	c := NewPrefix(p, Options{Recurrent: true, Snapshots: 2})
	one, _ := fill(t, c, "", text(1))
	two, _ := fill(t, c, "", text(2))
	three, _ := fill(t, c, "", text(3))
	save := func(path Path) int {
		id, ok := c.ReserveSnapshot()
		require.True(t, ok)
		c.Attach(path, id)
		return id
	}
	save(one)
	idTwo := save(two)
	c.Take(c.Lookup("", append(text(1), 0))) // now two was used longest ago
	require.Equal(t, idTwo, save(three))
	require.Zero(t, c.Lookup("", append(text(2), 0)).Length)
	require.Equal(t, 64, c.Lookup("", append(text(1), 0)).Length)

	a, _ := c.ReserveSnapshot()
	b, _ := c.ReserveSnapshot()
	_, ok := c.ReserveSnapshot()
	require.False(t, ok, "all are reserved")
	c.Attach(three, a)
	c.Attach(three, b) // there is one: this one is free again
	require.NoError(t, c.Check(0))
	again, _ := c.ReserveSnapshot()
	require.Equal(t, b, again)
	c.ReleaseSnapshot(again)
	require.NoError(t, c.Check(0))
	require.Panics(t, func() { c.Attach(Root(""), again) })
}

func TestEviction(t *testing.T) {
	p := NewPages(5)
	c := NewPrefix(p, Options{Recurrent: true, Snapshots: 1})
	_, a := fill(t, c, "", text(1, 2))
	path, b := fill(t, c, "x", text(1))
	id, _ := c.ReserveSnapshot()
	c.Attach(path, id)
	require.False(t, c.Evict(), "all pages are in use")
	release(p, a)
	release(p, b)
	require.Equal(t, 3, p.Idle())
	require.True(t, c.Evict())
	require.Equal(t, 64, c.Lookup("", text(1, 2)).Matched, "the end of a prompt goes first")
	require.Equal(t, 64, c.Lookup("x", append(text(1), 0)).Length)
	require.True(t, c.Evict())
	require.True(t, c.Evict())
	require.Zero(t, c.Lookup("x", append(text(1), 0)).Matched)
	require.NoError(t, c.Check(0), "the snapshot is free again")
	require.Equal(t, 5, p.Free())
	require.Empty(t, c.roots)
	require.False(t, c.Evict())
}

func TestExtendWantsAPage(t *testing.T) {
	c := NewPrefix(NewPages(1), Options{})
	require.Panics(t, func() { c.Extend(Root(""), []int32{1, 2}, 0) })
}

// TestCheckNotices: the check notices each kind of broken tree.
func TestCheckNotices(t *testing.T) {
	for name, harm := range map[string]func(c *Prefix){
		"page not in the tree":    func(c *Prefix) { c.byPage[0] = nil },
		"page of another":         func(c *Prefix) { c.byPage[0].page = 1 },
		"not the parent's child":  func(c *Prefix) { c.byPage[0].remove(c.byPage[1]) },
		"root gone":               func(c *Prefix) { delete(c.roots, "") },
		"parent let go":           func(c *Prefix) { c.pages.Unref(0) },
		"evicted in wrong order":  func(c *Prefix) { c.pages.Unref(0); c.pages.Unref(1) },
		"snapshot lost":           func(c *Prefix) { c.byPage[1].snapshot = -1 },
		"snapshot of another":     func(c *Prefix) { c.byPage[0].snapshot = 0 },
		"snapshot free and taken": func(c *Prefix) { c.snaps.free = append(c.snaps.free, 0) },
		"snapshot leaked":         func(c *Prefix) { c.snaps.free = nil },
	} {
		c := NewPrefix(NewPages(4), Options{Recurrent: true, Snapshots: 2})
		path, pages := fill(t, c, "", text(1, 2))
		id, _ := c.ReserveSnapshot()
		c.Attach(path, id)
		require.NoError(t, c.pages.Check([][]int32{pages}))
		require.NoError(t, c.Check(0))
		harm(c)
		require.Error(t, c.Check(0), name)
	}
}
