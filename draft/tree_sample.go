package draft

import (
	"math"
	"slices"
)

// drawnRates are how often the first, second, ... sibling of a row stands where they
// are drawn without replacement: what drawn trees are shaped by. The first three were
// counted on continuations of code by the embedded model at temperature 0.8, with its
// MTP layer; the others go on likewise. No row has more siblings.
var drawnRates = [][]float64{{0.72, 0.10, 0.05, 0.03, 0.02, 0.015, 0.01, 0.01}}

// drawnTrees has what drawing trees needs. Siblings are drawn one after the other,
// each from the network's distribution without those before it, as the rules of
// EAGLE (Li et al. 2024, arXiv:2401.15077) have it, and the rule is told that
// distribution. The shape of the tree depends on the number of drafts alone: a tree
// that kept the drafts that turned out likely, as dynamic trees do, would keep them
// with another distribution than the one that they were drawn from. Only where
// nothing is left to draw is a tree smaller.
type drawnTrees struct {
	shapes [][]medusaNode // by number of drafts
	probs  [][]float32    // memory of distributions
	used   int            // of them
}

// shape returns that of the trees of k drafts.
func (t *drawnTrees) shape(k int, c treeShape) []medusaNode {
	rates := [][]float64{drawnRates[0][:min(c.width, len(drawnRates[0]))]}
	for len(t.shapes) <= k {
		t.shapes = append(t.shapes, likeliestTree(len(t.shapes), c.depth, rates))
	}
	return t.shapes[k]
}

// row returns memory for a distribution over a vocabulary, until the next Propose.
func (t *drawnTrees) row(vocab int) []float32 {
	if t.used == len(t.probs) {
		t.probs = append(t.probs, make([]float32, vocab))
	}
	t.used++
	return t.probs[t.used-1]
}

// draw gives node n (-1: the pending token) the children that its place in the shape
// has, drawn without replacement from a row of logits, as the request would sample
// there. A row from which nothing can be drawn (a grammar that is at its end, say)
// gives none, and one that has few tokens gives few.
func (d *tree) draw(p *plant, n, row int) {
	a, s := p.ask, d.sampler
	place, depth := -1, 1
	var before []int32
	if n >= 0 {
		place, depth, before = p.nodes[n].place, p.nodes[n].depth+1, p.path(n)
	}
	q, err := a.Seq.Sampler().ProcessTo(d.drawn.row(d.vocab), s.spread(d.logits[row*d.net.Drafted():][:d.net.Drafted()]), before)
	if err != nil {
		return
	}
	for i, spot := range p.shape {
		if spot.parent != place {
			continue
		}
		token, told := s.pick(a, q, len(p.nodes), depth)
		if token < 0 {
			return
		}
		p.nodes = append(p.nodes, node{parent: n, depth: depth, token: token, score: math.Log(spot.rate), grown: -1, place: i})
		if !told {
			q[token] = 0
			continue
		}
		a.Draft.Probs = append(a.Draft.Probs, q)
		q = append(d.drawn.row(d.vocab)[:0], q...)
		q[token] = 0
	}
}

// path returns the tokens up to node n.
func (p *plant) path(n int) []int32 {
	var tokens []int32
	for ; n >= 0; n = p.nodes[n].parent {
		tokens = append(tokens, p.nodes[n].token)
	}
	slices.Reverse(tokens)
	return tokens
}

// chooseDrawn picks the drafts of the last level that the shape has children for.
func (p *plant) chooseDrawn() {
	if len(p.nodes) == 0 {
		return
	}
	deepest := p.nodes[len(p.nodes)-1].depth
	for n := range p.nodes {
		node := &p.nodes[n]
		bears := slices.ContainsFunc(p.shape, func(s medusaNode) bool { return s.parent == node.place })
		if node.depth == deepest && node.grown < 0 && bears {
			node.grown = len(p.grown)
			p.grown = append(p.grown, n)
		}
	}
}

// kept returns the drafts that are proposed: the likeliest, or all that were drawn.
func (p *plant) kept() []int {
	if p.shape == nil {
		return p.best()
	}
	all := make([]int, len(p.nodes))
	for i := range all {
		all[i] = i
	}
	return all
}
