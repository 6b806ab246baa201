package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// testSlots checks what happens to slots between spans: sharing of pages,
// snapshots, reuse.
func testSlots(t *testing.T, s suite) {
	t.Run("Prefix", func(t *testing.T) { testPrefix(t, s, (*rig).hybrid) })
	t.Run("Prefix/pooled", func(t *testing.T) { testPrefix(t, s, (*rig).pooled) })
	t.Run("SnapshotIsACopy", func(t *testing.T) {
		testSnapshot(t, s, func(r *rig) []*layer { return []*layer{r.deltaLayer(deltaShapes[0]), r.deltaLayer(deltaShapes[1])} })
	})
	t.Run("SnapshotIsACopy/pooled", func(t *testing.T) { testSnapshot(t, s, func(r *rig) []*layer { return r.pooled()[:1] }) })
	t.Run("Reset", func(t *testing.T) { testReset(t, s) })
	t.Run("RepeatedPages", func(t *testing.T) { testRemap(t, s) })
}

// hybrid is a recurrent layer and an attention layer.
func (r *rig) hybrid() []*layer {
	return []*layer{r.deltaLayer(deltaShapes[0]), r.attnLayer(attnShapes[0])}
}

// pooled are layers of a window and groups.
func (r *rig) pooled() []*layer {
	return []*layer{r.pooledLayer(pooledShapes[0]), r.pooledLayer(pooledShapes[5]), r.pooledLayer(pooledShapes[3])}
}

// testPrefix lets a second sequence take the first two pages of another one, and
// its states, and go its own way from there.
func testPrefix(t *testing.T, s suite, make func(r *rig) []*layer) {
	r := s.rig(t, 50)
	layers := make(r)
	base := r.machine(1, 4, 0, 0, layers...)
	a := base.sequence(200)
	wantA := base.baseline(a)
	own := r.machine(1, 4, 0, 0, layers...)
	b := append(append([][]float32(nil), a[:128]...), own.sequence(60)...)
	wantB := own.baseline(b)

	m := r.machine(3, 4, 5, 2, layers...)
	first := &track{name: "owner", rows: a, want: wantA, slot: 1, end: 128}
	m.play(false, verify(5), first)
	// The sequence stands at the border after a verification, whose rejected
	// rows lie behind it.
	m.q.Save(m.cs, 1, 0)
	first.end = 150
	m.play(false, verify(5), first)

	shared := m.given[1][:2]
	m.q.SetPages(m.cs, 2, 0, shared)
	m.mapped[2] = 2
	m.q.Restore(m.cs, 2, 0, 128)
	require.Equal(t, []int32{0, 150, 128}, r.ints(m.cs.Len()))
	first.end = 200
	m.play(true, verify(5), first, &track{name: "heir", rows: b, want: wantB, slot: 2, at: 128, end: 188})

	// The same hit again, in a slot that was in use.
	m.q.Reset(m.cs, 1)
	m.mapped[1] = 0
	m.q.SetPages(m.cs, 1, 0, shared)
	m.mapped[1] = 2
	m.q.Restore(m.cs, 1, 0, 128)
	m.play(false, mixed(5), &track{name: "second heir", rows: b, want: wantB, slot: 1, at: 128, end: 188})
}

// testSnapshot saves at several borders and restores out of order, after the
// slots went on.
func testSnapshot(t *testing.T, s suite, make func(r *rig) []*layer) {
	r := s.rig(t, 51)
	layers := make(r)
	base := r.machine(1, 5, 0, 0, layers...)
	rows := base.sequence(260)
	want := base.baseline(rows)

	m := r.machine(2, 5, 6, 4, layers...)
	tr := &track{name: "saving", rows: rows, want: want, slot: 0}
	m.q.Save(m.cs, 0, 3) // the empty state
	for i, border := range []int{64, 128, 192} {
		tr.end = border
		m.play(false, mixed(6), tr)
		m.q.Save(m.cs, 0, i)
	}
	tr.end = 230
	m.play(false, verify(6), tr)
	for _, c := range []struct{ snapshot, at int }{{1, 128}, {0, 64}, {2, 192}, {3, 0}, {1, 128}} {
		m.q.Restore(m.cs, 1, c.snapshot, c.at)
		m.play(false, verify(6), &track{name: "restored", rows: rows, want: want, slot: 1, at: c.at, end: c.at + 68})
	}
	// The saving slot didn't notice.
	tr.end = 260
	m.play(false, verify(6), tr)
	// Saved again over an old one.
	m.q.Restore(m.cs, 0, 0, 64)
	m.q.Save(m.cs, 0, 2)
	m.q.Restore(m.cs, 1, 2, 64)
	m.play(true, verify(6),
		&track{name: "overwritten", rows: rows, want: want, slot: 1, at: 64, end: 140},
		&track{name: "rewound", rows: rows, want: want, slot: 0, at: 64, end: 140})
}

// testReset reuses a slot in the middle of a window, with tentative rows left.
func testReset(t *testing.T, s suite) {
	r := s.rig(t, 52)
	layers := r.hybrid()
	base := r.machine(1, 3, 0, 0, layers...)
	rows := base.sequence(100)
	want := base.baseline(rows)
	m := r.machine(1, 3, 4, 0, layers...)
	for _, end := range []int{1, 30, 64, 66, 100} {
		tr := &track{name: "after a reset", rows: rows, want: want, end: end}
		m.play(false, mixed(4), tr)
		// A span that nobody commits, across the border if it is near.
		m.ensure(0, end+5)
		m.plain(piece{start: end, rows: m.sequence(5), kept: -1})
		m.reset(0)
		require.Equal(t, []int32{0}, r.ints(m.cs.Len()))
	}
}

// testRemap moves a sequence to other pages half-way: the table's entries are
// what counts, not the order of the pages.
func testRemap(t *testing.T, s suite) {
	r := s.rig(t, 53)
	l := r.attnLayer(attnShapes[1])
	base := r.machine(1, 3, 0, 0, l)
	rows := base.sequence(150)
	want := base.baseline(rows)
	m := r.machine(2, 3, 4, 0, l)
	for _, pages := range [][]int32{{5, 0, 3}, {0, 1, 2}, {4, 2, 1}} {
		m.q.Reset(m.cs, 0)
		for i, p := range pages {
			m.q.SetPages(m.cs, 0, i, []int32{p})
		}
		m.mapped[0] = 3
		m.play(false, verify(4), &track{name: "remapped", rows: rows, want: want, end: 150})
		// The same pages under another slot hold the same keys.
		m.q.SetPages(m.cs, 1, 0, pages)
		m.mapped[1] = 3
		m.q.Restore(m.cs, 1, -1, 128)
		m.play(false, chunks(9), &track{name: "shared whole", rows: rows, want: want, slot: 1, at: 128, end: 150})
	}
}
