package draft

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// medusaRates are how often the first, second, ... choice of a head is right where
// the path up to it is, by head: what a tree is shaped by. They were counted on
// continuations of code by the embedded model; heads that are better have larger
// ones, of about the same proportions.
var medusaRates = [][]float64{
	{0.48, 0.12, 0.06, 0.04, 0.03, 0.03, 0.02, 0.01},
	{0.37, 0.11, 0.06, 0.04, 0.03, 0.02, 0.02, 0.02},
	{0.35, 0.11, 0.06, 0.05, 0.03, 0.03, 0.03, 0.02},
}

// medusaRanks is the number of choices of a head that a tree may have.
const medusaRanks = 8

// medusaNode is a place in a tree: the choice of that rank of the head of that
// depth, behind node parent (-1: the pending token).
type medusaNode struct {
	parent, depth, rank int
	rate                float64 // of the whole path being right
}

// medusaTree returns the tree of k nodes for that many heads; see likeliestTree.
func medusaTree(k, heads int) []medusaNode { return likeliestTree(k, heads, medusaRates) }

// likeliestTree returns the tree of k nodes, or as many as there are, that is
// expected to give most accepted tokens, of at most depth nodes on a path, where a
// choice of each rank is right as often as rates says, by depth (the last row goes
// for all below). Parents come before their children, likelier siblings first. A
// tree of k is one of k+1 without its last.
func likeliestTree(k, depth int, byDepth [][]float64) []medusaNode {
	var tree []medusaNode
	for len(tree) < k {
		best := medusaNode{rate: -1}
		for parent := -1; parent < len(tree); parent++ {
			n := medusaNode{parent: parent, rate: 1}
			if parent >= 0 {
				n.depth, n.rate = tree[parent].depth+1, tree[parent].rate
			}
			for _, t := range tree {
				if t.parent == parent {
					n.rank++
				}
			}
			rates := byDepth[min(n.depth, len(byDepth)-1)]
			if n.depth < depth && n.rank < len(rates) && n.rate*rates[n.rank] > best.rate {
				n.rate *= rates[n.rank]
				best = n
			}
		}
		if best.rate < 0 {
			break
		}
		tree = append(tree, best)
	}
	return tree
}

// medusaBranching drafts trees of the heads' likeliest choices. It is no
// LoopDrafter: the choices are found on the host.
type medusaBranching struct {
	engine.DeviceDrafter // heads
	heads                *medusa
	logits               []float32 // of a step, by head and ask
	tops                 []int32   // by head and rank, of one ask
	trees                [][]medusaNode
}

// Propose implements engine.Drafter.
func (d *medusaBranching) Propose(q kernels.Queue, asks []*engine.Ask) error {
	h := d.heads
	active := h.begin(q, asks)
	for _, a := range asks {
		a.Draft.Parents = nil
	}
	if active == 0 {
		return nil
	}
	deepest := 0
	for _, n := range d.tree(h.order[0].K) {
		deepest = max(deepest, n.depth)
	}
	width := h.net.Drafted()
	d.logits = slices.Grow(d.logits[:0], (deepest+1)*active*width)[:(deepest+1)*active*width]
	last := h.last.Top(active)
	q.Gather(last, h.carry, h.slotTable.Top(active))
	var ticket kernels.Ticket
	for i := range deepest + 1 {
		ticket = q.Read(floatBytes(d.logits[i*active*width:][:active*width]), h.net.Logits(q, i, last))
	}
	if err := ticket.Wait(); err != nil {
		return fmt.Errorf("draft medusa: %w", err)
	}
	for at, a := range h.order[:active] {
		d.fill(a, func(head int) []float32 { return d.logits[(head*active+at)*width:][:width] })
	}
	return nil
}

// tree returns the tree of k nodes.
func (d *medusaBranching) tree(k int) []medusaNode {
	for len(d.trees) <= k {
		d.trees = append(d.trees, medusaTree(len(d.trees), d.heads.heads.Heads()))
	}
	return d.trees[k]
}

// fill makes an ask's draft from the heads' logits. A choice that a short
// vocabulary does not have is left out, with what would follow it.
func (d *medusaBranching) fill(a *engine.Ask, logits func(head int) []float32) {
	tree, found := d.tree(a.K), 0 // heads whose choices are in d.tops
	at := make([]int32, len(tree))
	parents := make([]int32, 0, len(tree))
	for i, n := range tree {
		for ; found <= n.depth; found++ {
			d.tops = append(d.tops[:found*medusaRanks], largest(logits(found), medusaRanks)...)
		}
		id, parent := d.tops[n.depth*medusaRanks+n.rank], int32(-1)
		if n.parent >= 0 {
			parent = at[n.parent]
		}
		if at[i] = -1; id < 0 || n.parent >= 0 && parent < 0 {
			continue
		}
		if ids := d.heads.ids; ids != nil {
			id = ids[id]
		}
		at[i] = int32(len(a.Draft.Tokens))
		a.Draft.Tokens, parents = append(a.Draft.Tokens, id), append(parents, parent)
	}
	a.Draft.Parents = parents
}

// largest returns the columns of the n largest values of a row, largest first, the
// lower column of equal ones; -1 fills up short rows.
func largest(row []float32, n int) []int32 {
	top := make([]int32, 0, n+1)
	for i, v := range row {
		if len(top) == n && v <= row[top[n-1]] {
			continue
		}
		at := len(top)
		for at > 0 && v > row[top[at-1]] {
			at--
		}
		top = slices.Insert(top, at, int32(i))[:min(len(top)+1, n)]
	}
	for len(top) < n {
		top = append(top, -1)
	}
	return top
}
