package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// slowPages is the obvious twin of Pages: lists, searched.
type slowPages struct {
	refs       map[int32]int
	kept       map[int32]bool
	free, idle []int32
}

func newSlowPages(n int) *slowPages {
	s := &slowPages{refs: map[int32]int{}, kept: map[int32]bool{}}
	for i := range n {
		s.free = append([]int32{int32(i)}, s.free...)
	}
	return s
}

func (s *slowPages) alloc() (int32, bool) {
	if len(s.free) == 0 {
		return -1, false
	}
	page := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.refs[page] = 1
	return page, true
}

func (s *slowPages) ref(page int32) {
	s.refs[page]++
	s.idle = slices.DeleteFunc(s.idle, func(p int32) bool { return p == page })
}

func (s *slowPages) unref(page int32) {
	s.refs[page]--
	switch {
	case s.refs[page] > 0:
	case s.kept[page]:
		s.idle = append(s.idle, page)
	default:
		s.free = append(s.free, page)
	}
}

func TestPagesAgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		n := 1 + rng.IntN(12)
		p, s := NewPages(n), newSlowPages(n)
		var held []int32 // one entry per reference
		for range 300 {
			switch op := rng.IntN(6); {
			case op == 0:
				got, ok := p.Alloc()
				want, wantOK := s.alloc()
				require.Equal(t, wantOK, ok)
				require.Equal(t, want, got)
				if ok {
					held = append(held, got)
				}
			case op == 1 && len(held)+len(s.idle) > 0:
				page := append(slices.Clone(held), s.idle...)[rng.IntN(len(held)+len(s.idle))]
				p.Ref(page)
				s.ref(page)
				held = append(held, page)
			case op < 4 && len(held) > 0:
				i := rng.IntN(len(held))
				p.Unref(held[i])
				s.unref(held[i])
				held = slices.Delete(held, i, i+1)
			case op == 4 && len(held) > 0:
				if page := held[rng.IntN(len(held))]; !p.Kept(page) {
					p.keep(page)
					s.kept[page] = true
				}
			case op == 5:
				page, ok := p.oldest()
				require.Equal(t, len(s.idle) > 0, ok)
				if ok {
					require.Equal(t, s.idle[0], page)
					p.drop(page)
					s.idle, s.kept[page] = s.idle[1:], false
					s.free = append(s.free, page)
				}
			}
			require.Equal(t, []int{len(s.free), len(s.idle), n - len(s.free) - len(s.idle)}, []int{p.Free(), p.Idle(), p.Used()})
			require.Equal(t, n, p.Total())
			require.NoError(t, p.Check([][]int32{held}))
		}
	}
}

func TestPagesOrder(t *testing.T) {
	p := NewPages(3)
	for want := range int32(3) {
		got, ok := p.Alloc()
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok := p.Alloc()
	require.False(t, ok, "a page too many")
	p.Unref(0)
	p.Unref(2)
	got, _ := p.Alloc()
	require.Equal(t, int32(2), got, "the page freed last comes first")
}

func TestPagesMisuse(t *testing.T) {
	p := NewPages(2)
	require.Panics(t, func() { p.Ref(0) }, "reference to a free page")
	require.Panics(t, func() { p.Unref(0) }, "release of a free page")
	require.Panics(t, func() { p.keep(0) }, "keep of a free page")
	page, _ := p.Alloc()
	p.keep(page)
	require.Panics(t, func() { p.keep(page) }, "kept twice")
	require.Panics(t, func() { p.drop(page) }, "drop of a page in use")
}

// TestPagesCheck: the check notices each kind of broken count.
func TestPagesCheck(t *testing.T) {
	for name, harm := range map[string]func(p *Pages){
		"count":        func(p *Pages) { p.refs[0]++ },
		"leak":         func(p *Pages) { p.free = p.free[:0] },
		"double free":  func(p *Pages) { p.free = append(p.free, p.free[0]) },
		"free in use":  func(p *Pages) { p.free = append(p.free, 0) },
		"idle lost":    func(p *Pages) { p.unlink(1) },
		"idle counted": func(p *Pages) { p.idle++ },
	} {
		p := NewPages(3)
		a, _ := p.Alloc()
		b, _ := p.Alloc()
		p.keep(b)
		p.Unref(b)
		require.NoError(t, p.Check([][]int32{{a}}))
		harm(p)
		require.Error(t, p.Check([][]int32{{a}}), name)
	}
}
