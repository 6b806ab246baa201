package cache

import (
	"slices"

	"exacta.dev/exacta/kernels"
)

// node is one full page in the prefix tree. Its path from the root spells the
// tokens of all pages up to and including its own.
type node struct {
	parent   *node // nil in a root
	space    string
	tokens   []int32 // kernels.PageTokens of them; none in a root
	hash     uint64
	page     int32
	depth    int                // pages on the path
	snapshot int32              // recurrent snapshot at the page's end; -1 is none
	children map[uint64][]*node // by hash; never iterated
	count    int                // children in all
	pins     int                // pinned paths that the page is on
}

// child returns the child for a page's tokens, which must match one by one:
// the hash only finds the candidates.
func (n *node) child(hash uint64, tokens []int32) *node {
	for _, c := range n.children[hash] {
		if slices.Equal(c.tokens, tokens) {
			return c
		}
	}
	return nil
}

func (n *node) add(c *node) {
	if n.children == nil {
		n.children = make(map[uint64][]*node)
	}
	n.children[c.hash] = append(n.children[c.hash], c)
	n.count++
}

func (n *node) remove(c *node) {
	same := n.children[c.hash]
	same = slices.DeleteFunc(same, func(x *node) bool { return x == c })
	if len(same) == 0 {
		delete(n.children, c.hash)
	} else {
		n.children[c.hash] = same
	}
	n.count--
}

// hashTokens is FNV-1a over the tokens.
func hashTokens(tokens []int32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h = (h ^ uint64(uint32(t))) * 1099511628211
	}
	return h
}

// fullPages returns the number of full pages among n tokens.
func fullPages(n int) int { return n / kernels.PageTokens }
