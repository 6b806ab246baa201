package draft

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Trees have parents before children, no choice of a parent twice, no more depth
// than heads, and the likeliest nodes: a tree of k is one of k+1 without its last.
func TestMedusaTrees(t *testing.T) {
	require.Empty(t, medusaTree(0, 4))
	big := medusaTree(40, 3)
	require.Len(t, big, 40)
	seen := map[[2]int]bool{}
	for i, n := range big {
		require.Less(t, n.parent, i)
		require.Less(t, n.depth, 3)
		if n.parent >= 0 {
			require.Equal(t, big[n.parent].depth+1, n.depth)
		}
		require.False(t, seen[[2]int{n.parent, n.rank}])
		seen[[2]int{n.parent, n.rank}] = true
		if i > 0 {
			require.LessOrEqual(t, n.rate, big[i-1].rate)
		}
		require.Equal(t, big[:i+1], medusaTree(i+1, 3))
	}
	require.Len(t, medusaTree(40, 1), medusaRanks, "one head has no more choices")
}

func TestLargest(t *testing.T) {
	require.Equal(t, []int32{3, 1, 4}, largest([]float32{0, 5, 1, 9, 5, 2}, 3))
	require.Equal(t, []int32{1, 0, -1}, largest([]float32{0, 5}, 3))
}
