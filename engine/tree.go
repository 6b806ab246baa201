package engine

import (
	"fmt"
	"slices"
)

// Parent returns the index in Tokens of the token that Tokens[i] follows, or -1
// for the pending token.
func (d *Draft) Parent(i int) int {
	if d.Parents == nil {
		return i - 1
	}
	return int(d.Parents[i])
}

// First returns the first draft that follows a row, or -1. Row 0 is the pending
// token's, row i+1 that of draft i.
func (d *Draft) First(row int) int { return d.from(row, row) }

// Sibling returns the next draft after draft i that follows the same row, or -1.
func (d *Draft) Sibling(i int) int { return d.from(d.Parent(i)+1, i+1) }

// from returns the first draft that follows a row, from draft i on.
func (d *Draft) from(row, i int) int {
	for ; i < len(d.Tokens); i++ {
		if d.Parent(i) == row-1 {
			return i
		}
		if d.Parents == nil {
			break
		}
	}
	return -1
}

// Child returns the first draft that follows a row and is token, or -1.
func (d *Draft) Child(row int, token int32) int {
	i := d.First(row)
	for i >= 0 && d.Tokens[i] != token {
		i = d.Sibling(i)
	}
	return i
}

// Depth returns the number of tokens on the longest path.
func (d *Draft) Depth() int {
	most := 0
	for i := range d.Tokens {
		most = max(most, d.depth(i))
	}
	return most
}

func (d *Draft) depth(i int) int {
	if d.Parents == nil {
		return i + 1
	}
	n := 0
	for ; i >= 0; i = d.Parent(i) {
		n++
	}
	return n
}

// Branch returns the path to the first draft of the greatest depth, as indices in
// Tokens.
func (d *Draft) Branch() []int32 {
	deepest, most := -1, 0
	for i := range d.Tokens {
		if n := d.depth(i); n > most {
			deepest, most = i, n
		}
	}
	path := make([]int32, most)
	for i := deepest; i >= 0; i = d.Parent(i) {
		most--
		path[most] = int32(i)
	}
	return path
}

// along checks that a verdict accepts drafts that follow each other from the
// pending token on.
func (d *Draft) along(v *Verdict) error {
	if v.Path == nil && d.Parents == nil {
		return nil
	}
	if v.Path != nil && len(v.Path) != int(v.Accepted) {
		return fmt.Errorf("%d drafts are accepted along a path of %d", v.Accepted, len(v.Path))
	}
	before := -1
	for j := range int(v.Accepted) {
		i := j
		if v.Path != nil {
			i = int(v.Path[j])
		}
		if i < 0 || i >= len(d.Tokens) || d.Parent(i) != before {
			return fmt.Errorf("draft %d is accepted after draft %d, which it does not follow", i, before)
		}
		before = i
	}
	return nil
}

// first cuts a draft to its first n tokens.
func (d *Draft) first(n int) {
	d.Tokens = d.Tokens[:n]
	d.Parents = d.Parents[:min(n, len(d.Parents))]
}

// settle makes a draft a tree whose parents come before their children, or, where
// it has one branch, a chain: it is cut before the first parent that is none.
func (d *Draft) settle() {
	if d.Parents == nil {
		return
	}
	d.first(min(len(d.Tokens), len(d.Parents)))
	chain := true
	for i, p := range d.Parents {
		if p < -1 || int(p) >= i {
			d.first(i)
			break
		}
		chain = chain && int(p) == i-1
	}
	if chain {
		d.Parents = nil
	}
}

// straighten sets the item's path where the verdict keeps others than the first
// rows.
func (it *item) straighten() {
	it.path = nil
	for i, d := range it.verdict.Path {
		if int(d) != i {
			it.path = append(make([]int32, 0, len(it.verdict.Path)+1), 0)
			for _, d := range it.verdict.Path {
				it.path = append(it.path, d+1)
			}
			return
		}
	}
}

// row returns row j of those that are kept.
func (it *item) row(j int) int {
	if j < len(it.path) {
		return int(it.path[j])
	}
	return j
}

// spanTokens are the span's tokens as drafters are told of them.
func (it *item) spanTokens() []int32 {
	if it.path == nil {
		return it.tokens
	}
	kept := make([]int32, it.kept)
	for j := range kept {
		kept[j] = it.tokens[it.row(j)]
	}
	return kept
}

// order returns the rows of an item's span, those that were kept first, in order
// of position, then the others. Parents still come before their children. Nil
// means that they are in that order.
func (it *item) order() []int {
	if it.path == nil {
		return nil
	}
	rows := make([]int, 0, len(it.tokens))
	for _, i := range it.path {
		rows = append(rows, int(i))
	}
	for i := range it.tokens {
		if !slices.Contains(it.path, int32(i)) {
			rows = append(rows, i)
		}
	}
	return rows
}

// reorder returns s with element order[i] in place i; as it is where order is nil
// or about other elements.
func reorder[T any](s []T, order []int) []T {
	if len(order) != len(s) {
		return s
	}
	out := make([]T, len(s))
	for i, from := range order {
		out[i] = s[from]
	}
	return out
}

// recorded returns a draft's tokens and parents in the order of a record: those
// that were accepted first. Parents are nil for a chain.
func (it *item) recorded() (tokens, parents []int32) {
	d, rows := &it.draft, it.order()
	if rows == nil {
		return slices.Clone(d.Tokens), slices.Clone(d.Parents)
	}
	place := make([]int32, len(rows)) // of a row
	for i, from := range rows {
		place[from] = int32(i)
	}
	for _, from := range rows[1:] {
		tokens = append(tokens, d.Tokens[from-1])
		parents = append(parents, place[d.Parent(from-1)+1]-1)
	}
	return tokens, parents
}
