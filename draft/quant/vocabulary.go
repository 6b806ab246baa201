package quant

import (
	"fmt"
	"slices"
)

// Frequent returns the n ids of a list that are most frequent in a text, in ascending
// order; ties go to the lower id, so that rare tokens of a short text are taken in their
// order in the vocabulary.
func Frequent(text, of []int32, n int) ([]int32, error) {
	if n < 1 || n > len(of) {
		return nil, fmt.Errorf("%d tokens of a vocabulary of %d; it must be 1..%d", n, len(of), len(of))
	}
	count := map[int32]int{}
	for _, id := range text {
		count[id]++
	}
	ids := slices.Clone(of)
	slices.Sort(ids)
	slices.SortStableFunc(ids, func(a, b int32) int { return count[b] - count[a] })
	ids = ids[:n]
	slices.Sort(ids)
	return ids, nil
}
