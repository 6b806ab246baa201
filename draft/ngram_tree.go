package draft

import "slices"

// mostOccurrences bounds how many occurrences of an n-gram are looked at for branches.
const mostOccurrences = 32

// link notes, for n-grams of the index's length number i, that the one which ends
// before position end occurred last before position at; 0 is never.
func (ix *ngramIndex) link(i, end, at int) {
	for len(ix.before) <= i {
		ix.before = append(ix.before, nil)
	}
	for len(ix.before[i]) < end {
		ix.before[i] = append(ix.before[i], 0)
	}
	ix.before[i] = append(ix.before[i], int32(at))
}

// earlier returns the position after the occurrence before the one that ends before
// position at, or 0.
func (ix *ngramIndex) earlier(i, at int) int { return int(ix.before[i][at]) }

// places returns the positions of at most cfg.Branches continuations that begin
// differently: those after occurrences of the longest n-gram at the end of tokens, the
// latest first, then those of shorter ones.
func (ix *ngramIndex) places(tokens []int32, cfg NGram) []int {
	var places []int
	for n := min(cfg.MaxMatch, len(tokens)); n >= cfg.MinMatch; n-- {
		at := ix.after[gramOf(tokens[len(tokens)-n:])]
		for range mostOccurrences {
			if at == 0 || len(places) == cfg.Branches {
				break
			}
			if !slices.ContainsFunc(places, func(p int) bool { return tokens[p] == tokens[at] }) {
				places = append(places, at)
			}
			at = ix.earlier(n-cfg.MinMatch, at)
		}
	}
	return places
}

// tree returns a draft of k tokens that is a tree of several continuations. They
// branch at the pending token. Of the tokens the second gets a quarter, the third an
// eighth, and so on, and the first what is left.
func (ix *ngramIndex) tree(tokens []int32, cfg NGram, k int) (drafts, parents []int32) {
	places := ix.places(tokens, cfg)
	sizes := make([]int, len(places))
	rest := k
	for i := 1; i < len(places); i++ {
		sizes[i] = k >> (i + 1)
		rest -= sizes[i]
	}
	for i, at := range places {
		if i == 0 {
			sizes[0] = rest
		}
		for j, id := range follow(nil, tokens, at, sizes[i]) {
			parent := int32(len(drafts)) - 1
			if j == 0 {
				parent = -1
			}
			drafts, parents = append(drafts, id), append(parents, parent)
		}
	}
	return drafts, parents
}
