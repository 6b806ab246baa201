package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// mergeSlow is the definition: look at all pairs, merge the first of the
// lowest rank, until none merges.
func mergeSlow(m *bpe, ids []int32) []int32 {
	for {
		best, at := noMerge, -1
		for i := 0; i+1 < len(ids); i++ {
			if v := m.lookup(ids[i], ids[i+1]); v < best {
				best, at = v, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Concat(ids[:at], []int32{int32(uint32(best))}, ids[at+2:])
	}
}

func TestMergesAgreeWithDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	merged := 0
	for range 300 {
		// A random grammar: each merge joins two symbols that exist already.
		m := newBPE(60)
		symbols := int32(3)
		for rank := range uint64(60) {
			m.add(pairKey(r.Int32N(symbols), r.Int32N(symbols)), rank<<32|uint64(symbols))
			symbols++
		}
		var buf mergeBuffer
		for range 20 {
			ids := make([]int32, r.IntN(100))
			for i := range ids {
				ids[i] = r.Int32N(3)
			}
			want := mergeSlow(&m, slices.Clone(ids))
			merged += len(ids) - len(want)
			require.Equal(t, want, m.mergeLong(slices.Clone(ids), &buf), "long")
			if len(ids) <= shortWord {
				require.Equal(t, want, m.mergeShort("", slices.Clone(ids)), "short")
			}
		}
	}
	require.Greater(t, merged, 10_000)
}

func TestMergeTable(t *testing.T) {
	m := newBPE(1000)
	want := map[uint64]uint64{}
	r := rand.New(rand.NewPCG(5, 6))
	for i := range uint64(1000) {
		pair := pairKey(r.Int32N(50), r.Int32N(50))
		m.add(pair, i<<32|7)
		want[pair] = i<<32 | 7 // the last one of a pair holds
	}
	for a := range int32(60) {
		for b := range int32(60) {
			v, ok := want[pairKey(a, b)]
			if !ok {
				v = noMerge
			}
			require.Equal(t, v, m.lookup(a, b))
		}
	}
}
