package draft

import (
	"cmp"
	"slices"

	"exacta.dev/exacta/engine"
)

// plant is the tree of one ask while it grows.
type plant struct {
	ask   *engine.Ask
	nodes []node
	grown []int // nodes that were run through the network, in order
	fresh int   // of them: where the last level begins
	off   int   // row of the first of them
	// shape is that of a tree whose tokens are drawn; nil: dynamic.
	shape []medusaNode
}

// node is a draft that may be proposed.
type node struct {
	parent, depth int
	token         int32
	score         float64 // log of the probability of its path
	grown         int     // index among those that were run; -1: not
	place         int     // in the shape, of a drawn one
}

// choose picks the drafts that are run next: the likeliest of the last level, at most
// width and at most as many as K in all, of which a child could be among the K
// likeliest drafts.
func (p *plant) choose(width int) {
	p.fresh = len(p.grown)
	if p.shape != nil {
		p.chooseDrawn()
		return
	}
	deepest := 0
	for _, n := range p.nodes {
		deepest = max(deepest, n.depth)
	}
	kept := p.best()
	for _, n := range kept {
		if len(p.grown) == p.ask.K || len(p.grown)-p.fresh == width {
			break
		}
		if p.nodes[n].depth == deepest && p.nodes[n].grown < 0 {
			p.nodes[n].grown = len(p.grown)
			p.grown = append(p.grown, n)
		}
	}
}

// best returns the K likeliest drafts, the likeliest first; of equals the one that
// came first, so that parents come before their children.
func (p *plant) best() []int {
	order := make([]int, len(p.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.nodes[b].score, p.nodes[a].score) })
	return order[:min(len(order), p.ask.K)]
}
