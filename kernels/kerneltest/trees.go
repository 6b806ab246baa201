package kerneltest

import (
	"fmt"
	"testing"

	"exacta.dev/exacta/kernels"
)

// testTrees verifies trees: every row must be the row that the chain of its path
// gives, and after a path was committed the caches must be those of that chain,
// wherever the tree stands between the borders of pages, windows and splits.
func testTrees(t *testing.T, s suite) {
	if !s.o.Trees {
		t.Skip("the backend does not claim trees")
	}
	var around []int // a window border, and the border before a second one
	for n := 56; n <= 65; n++ {
		around = append(around, n)
	}
	kinds := []struct {
		name string
		make func(r *rig) []*layer
		at   []int
	}{
		{"Attend", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[0])} }, around},
		{"Attend/grouped", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[1])} }, []int{1, 61, 126}},
		{"Attend/latent", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[7])} }, []int{1, 62}},
		{"Attend/chosen", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[5])} }, []int{30, 61}},
		{"Attend/blocks", func(r *rig) []*layer { return []*layer{r.attnLayer(attnShapes[6])} }, []int{2, 30, 61}},
		{"Blend", func(r *rig) []*layer { return []*layer{r.blendLayer()} }, []int{1, 7, 60}},
		{"Grams", func(r *rig) []*layer { return []*layer{r.gramLayer()} }, []int{1, 3, 62}},
		{"Attend/splits", func(r *rig) []*layer { return []*layer{r.attnLayer(narrow)} }, []int{507, 509, 510, 511, 512}},
		{"Delta", func(r *rig) []*layer { return []*layer{r.deltaLayer(deltaShapes[0])} }, append([]int{1, 3, 120}, around...)},
		{"Delta/long", func(r *rig) []*layer { return []*layer{r.deltaLayer(deltaShapes[2])} }, []int{2, 62, 127}},
		{"Pooled/window", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[0])} }, []int{1, 15, 62}},
		{"Pooled/overlap", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[1])} }, []int{1, 3, 59, 61, 62}},
		{"Pooled/long", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[3]), r.pooledLayer(pooledShapes[2])} }, []int{3, 8, 64, 70, 138}},
		{"Pooled/chosen", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[5])} }, []int{2, 30, 61}},
		{"Pooled/candidates", func(r *rig) []*layer { return []*layer{r.pooledLayer(pooledShapes[6])} }, []int{1, 30, 61}},
		{"Both", func(r *rig) []*layer {
			return []*layer{r.deltaLayer(deltaShapes[1]), r.attnLayer(attnShapes[2]), r.deltaLayer(deltaShapes[3])}
		}, []int{5, 59, 63, 123}},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := s.rig(t, 54)
			layers := k.make(r)
			for i, n := range k.at {
				testTree(r, fmt.Sprintf("a tree at %d", n), layers, n, i)
			}
		})
	}
}

// treeDraft is the most rows after the first of a tree.
const treeDraft = 13

// testTree runs a few trees of a sequence, one after the other, beside other
// spans, and goes on with chains across the next border.
func testTree(r *rig, name string, layers []*layer, n, shape int) {
	r.t.Helper()
	slotPages := n/kernels.PageTokens + 4
	base, m := r.machine(1, slotPages, treeDraft, 0, layers...), r.machine(3, slotPages, treeDraft, 0, layers...)
	rows := base.sequence(n)
	base.ensure(0, n)
	m.ensure(1, n)
	base.plain(piece{rows: rows, kept: n})
	m.plain(piece{slot: 1, rows: rows, kept: n})
	for round := range 3 {
		rows = append(rows, m.tree(base, fmt.Sprintf("%s, round %d", name, round), len(rows), r.parents(shape+round))...)
	}
	tail := m.sequence(kernels.WindowTokens + 6)
	base.ensure(0, len(rows)+len(tail))
	want := base.plain(piece{start: len(rows), rows: tail, kept: len(tail)})[0]
	rows = append(rows, tail...)
	all := append(make([][]byte, len(rows)-len(tail)), want...)
	m.play(false, verify(5), &track{name: name + ", after it", rows: rows, want: all, slot: 1, at: len(rows) - len(tail), end: len(rows)})
	m.close()
	base.close()
}

// parents returns the parents of a tree: level by level with two children each,
// depth first, a root with many children, or at random.
func (r *rig) parents(shape int) []int {
	n := 2 + r.rnd.IntN(treeDraft)
	p := make([]int, n)
	p[0] = -1
	for i := 1; i < n; i++ {
		switch shape % 4 {
		case 0:
			p[i] = (i - 1) / 2
		case 1: // a long branch, and a twig at every row of it
			if p[i] = i - 1; i%2 == 0 {
				p[i] = i - 2
			}
		case 2: // two long branches
			p[i] = i - 1
			if i == n/2+1 {
				p[i] = 0
			}
		default:
			p[i] = i - 1 - r.rnd.IntN(min(i, 3))
		}
	}
	return p
}

// pathTo returns the rows from the root to row i.
func pathTo(parent []int, i int) []int {
	if i < 0 {
		return nil
	}
	return append(pathTo(parent, parent[i]), i)
}

// tree runs a tree behind n rows in slot 1, commits a path of it, and returns the
// path's rows. base holds the same sequence in slot 0 and runs the chains.
func (m *machine) tree(base *machine, name string, n int, parent []int) [][]float32 {
	m.t.Helper()
	nodes := m.sequence(len(parent))
	chain := func(i int) (rows [][]float32) {
		for _, j := range pathTo(parent, i) {
			rows = append(rows, nodes[j])
		}
		return rows
	}
	base.ensure(0, n+len(parent))
	m.ensure(1, n+len(parent))
	m.ensure(0, 3)
	end := m.rnd.IntN(len(parent))
	path := pathTo(parent, end)
	along := path
	if m.rnd.IntN(2) == 0 { // the first rows, and no path that says so
		end, along = 0, nil
		for end+1 < len(parent) && parent[end+1] == end {
			end++
		}
		path = pathTo(parent, end)
	}
	m.reset(0)
	got := m.step([]piece{
		{slot: 1, start: n, rows: nodes, parent: parent, kept: len(path), path: along},
		{slot: 0, rows: m.sequence(3), kept: 2},
	}, 3, len(parent)+7, true)[0]
	for i := range parent {
		p := chain(i)
		want := base.plain(piece{start: n, rows: p, kept: 0})[0]
		m.same(kernels.BF16, want[len(p)-1], got[i], "%s: node %d of %v", name, i, parent)
	}
	base.plain(piece{start: n, rows: chain(end), kept: len(path)})
	return chain(end)
}
