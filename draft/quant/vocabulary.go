package quant

import (
	"fmt"
	"slices"
)

// Frequent returns the n ids below vocab that are most frequent in a text, in
// ascending order; ties go to the lower id, so that rare tokens of a short text are
// taken in their order in the vocabulary.
func Frequent(text []int32, vocab, n int) ([]int32, error) {
	if n < 1 || n > vocab {
		return nil, fmt.Errorf("%d tokens of a vocabulary of %d; it must be 1..%d", n, vocab, vocab)
	}
	count := make([]int, vocab)
	for _, id := range text {
		if id < 0 || int(id) >= vocab {
			return nil, fmt.Errorf("token %d is outside the vocabulary 0..%d", id, vocab-1)
		}
		count[id]++
	}
	ids := make([]int32, vocab)
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return count[b] - count[a] })
	ids = ids[:n]
	slices.Sort(ids)
	return ids, nil
}
