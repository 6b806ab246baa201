// Package suffixtree counts what follows what: a trie of all substrings, up to
// a depth, of the token sequences that were put in. It is the data structure
// behind suffix decoding (Oliaro et al. 2024, arXiv:2411.04975): a drafter finds
// the node of the last tokens of a text and follows the children that were seen
// most often.
//
// Appending a token costs one step down for each of the last depth tokens;
// taking a sequence out costs the same again. A Tree is not safe for concurrent
// use.
package suffixtree

import "slices"

// Tree is a trie of substrings of at most Depth tokens, with counts. Its zero
// value is not usable; see New.
type Tree struct {
	depth int
	nodes []node
	free  []int32
	child map[edge]int32
}

// node is a substring. Siblings form a list.
type node struct {
	token               int32
	count               int32 // occurrences
	parent              int32
	first, next, before int32 // first child; siblings; none = -1
	best                int32 // the child seen most often, ties to the lower token
}

type edge struct{ parent, token int32 }

const (
	root = 0
	none = -1
)

// NodeBytes is about what a node costs in memory, with its entry in the map.
const NodeBytes = 28 + 32

// New returns an empty tree of substrings of at most depth tokens; depth is at
// least 2.
func New(depth int) *Tree {
	return &Tree{depth: max(depth, 2), nodes: []node{{first: none, next: none, before: none, best: none, parent: none}}, child: map[edge]int32{}}
}

// Nodes returns the number of substrings held.
func (t *Tree) Nodes() int { return len(t.nodes) - len(t.free) - 1 }

// Text is a sequence that is being appended to a tree.
type Text struct {
	// active[i] is the node of the last i tokens.
	active []int32
}

// Append appends a token to a text in the tree.
func (t *Tree) Append(x *Text, token int32) {
	if len(x.active) == 0 {
		x.active = append(x.active, root)
	}
	n := min(len(x.active), t.depth)
	next := append(make([]int32, 0, n+1), root)
	for _, a := range x.active[:n] {
		c := t.down(a, token)
		if c == none {
			c = t.grow(a, token)
		}
		t.nodes[c].count++
		t.promote(a, c)
		next = append(next, c)
	}
	x.active = next
}

// Remove takes out a whole sequence that was appended as one text.
func (t *Tree) Remove(tokens []int32) {
	for i := range tokens {
		at := int32(root)
		for _, token := range tokens[i:min(i+t.depth, len(tokens))] {
			c := t.down(at, token)
			t.nodes[c].count--
			at = c
		}
		for at != root && t.nodes[at].count == 0 {
			parent := t.nodes[at].parent
			t.drop(at)
			at = parent
		}
		for at != root {
			t.rejudge(t.nodes[at].parent)
			at = t.nodes[at].parent
		}
	}
}

func (t *Tree) down(parent, token int32) int32 {
	if c, ok := t.child[edge{parent, token}]; ok {
		return c
	}
	return none
}

func (t *Tree) grow(parent, token int32) int32 {
	first := t.nodes[parent].first
	n := node{token: token, parent: parent, first: none, next: first, before: none, best: none}
	var id int32
	if k := len(t.free); k > 0 {
		id, t.free = t.free[k-1], t.free[:k-1]
		t.nodes[id] = n
	} else {
		id = int32(len(t.nodes))
		t.nodes = append(t.nodes, n)
	}
	if first != none {
		t.nodes[first].before = id
	}
	t.nodes[parent].first = id
	t.child[edge{parent, token}] = id
	return id
}

// drop takes out a leaf.
func (t *Tree) drop(id int32) {
	n := &t.nodes[id]
	if n.before == none {
		t.nodes[n.parent].first = n.next
	} else {
		t.nodes[n.before].next = n.next
	}
	if n.next != none {
		t.nodes[n.next].before = n.before
	}
	delete(t.child, edge{n.parent, n.token})
	parent := n.parent
	t.free = append(t.free, id)
	if t.nodes[parent].best == id {
		t.nodes[parent].best = none
		t.rejudge(parent)
	}
}

// promote makes c the best child of its parent if it now is.
func (t *Tree) promote(parent, c int32) {
	if b := t.nodes[parent].best; b == none || t.better(c, b) {
		t.nodes[parent].best = c
	}
}

func (t *Tree) better(a, b int32) bool {
	x, y := &t.nodes[a], &t.nodes[b]
	return x.count > y.count || x.count == y.count && x.token < y.token
}

// rejudge finds the best child again, after counts fell.
func (t *Tree) rejudge(parent int32) {
	best := int32(none)
	for c := t.nodes[parent].first; c != none; c = t.nodes[c].next {
		if best == none || t.better(c, best) {
			best = c
		}
	}
	t.nodes[parent].best = best
}

// Guess is a continuation found in a tree.
type Guess struct {
	Tokens []int32
	// Parents[i] is the index of the token that Tokens[i] follows, or -1; nil
	// where each follows the one before it.
	Parents []int32
	// Match is the number of tokens at the end of the text that were found.
	Match int
	// Score is the expected number of Tokens that are right, if what
	// followed before follows again: the sum of Probs.
	Score float64
	// Probs are, by token, the share of the occurrences of the match that went
	// on with the tokens up to it.
	Probs []float64
}

// Limits bound a guess.
type Limits struct {
	// Tokens is the most tokens to guess.
	Tokens int
	// Factor bounds them by the length of the match, times Factor.
	Factor float64
	// MinProb ends a guess before the first token of a lower probability.
	MinProb float64
	// Branches is the most tokens that may follow one token. Above 1 a guess
	// is a tree: the Tokens likeliest ones, of which those on a path are
	// bounded by Factor. At most 1 is a chain.
	Branches int
}

// Continue returns the guess with the highest score, over all lengths of match,
// for the text's next tokens. Of equal scores the longer match wins.
func (t *Tree) Continue(x *Text, l Limits) Guess {
	var best Guess
	for m := len(x.active) - 1; m > 0; m-- {
		if g := t.follow(x.active[m], m, l); g.Score > best.Score {
			best = g
		}
	}
	return best
}

// Lookup is Continue for a text that is not in the tree.
func (t *Tree) Lookup(tokens []int32, l Limits) Guess {
	var best Guess
	for m := min(t.depth-1, len(tokens)); m > 0; m-- {
		at := int32(root)
		for _, token := range tokens[len(tokens)-m:] {
			if at = t.down(at, token); at == none {
				break
			}
		}
		if at == none {
			continue
		}
		if g := t.follow(at, m, l); g.Score > best.Score {
			best = g
		}
	}
	return best
}

// twig is a token that a tree of guesses may go on with.
type twig struct {
	node   int32
	parent int32 // index of the guess before it, or -1
	depth  int
	p      float64
}

// spread takes the likeliest token that follows the match or a token that was
// taken, again and again; of equals the one that was seen first.
func (t *Tree) spread(at int32, match int, l Limits) Guess {
	g := Guess{Match: match, Parents: []int32{}}
	most := int(l.Factor * float64(match))
	var open []twig
	sprout := func(from int32, parent int32, depth int, p float64) {
		if depth > most {
			return
		}
		first := len(open)
		for c := t.nodes[from].first; c != none; c = t.nodes[c].next {
			share := p * float64(t.nodes[c].count) / float64(t.nodes[from].count)
			if share < l.MinProb {
				continue
			}
			i := first
			for i < len(open) && t.better(open[i].node, c) {
				i++
			}
			if i-first < l.Branches {
				open = slices.Insert(open, i, twig{c, parent, depth, share})
				open = open[:min(len(open), first+l.Branches)]
			}
		}
	}
	sprout(at, -1, 1, 1)
	for len(g.Tokens) < l.Tokens && len(open) > 0 {
		next := 0
		for i, w := range open {
			if w.p > open[next].p {
				next = i
			}
		}
		w := open[next]
		open = slices.Delete(open, next, next+1)
		g.Tokens, g.Parents = append(g.Tokens, t.nodes[w.node].token), append(g.Parents, w.parent)
		g.Probs, g.Score = append(g.Probs, w.p), g.Score+w.p
		sprout(w.node, int32(len(g.Tokens)-1), w.depth+1, w.p)
	}
	return g
}

// follow goes down the best children.
func (t *Tree) follow(at int32, match int, l Limits) Guess {
	if l.Branches > 1 {
		return t.spread(at, match, l)
	}
	g := Guess{Match: match}
	most := min(l.Tokens, int(l.Factor*float64(match)))
	p := 1.0
	for len(g.Tokens) < most {
		c := t.nodes[at].best
		if c == none {
			break
		}
		p *= float64(t.nodes[c].count) / float64(t.nodes[at].count)
		if p < l.MinProb {
			break
		}
		g.Tokens = append(g.Tokens, t.nodes[c].token)
		g.Probs = append(g.Probs, p)
		g.Score += p
		at = c
	}
	return g
}
