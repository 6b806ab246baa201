package draft

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// A draft that ends early is the beginning of the one that doesn't, for each of several
// sequences that end at places of their own.
func TestChainsEndWhereUnsure(t *testing.T) {
	m := small(t, backends(t)["cpu"], true, 2)
	cfg := engine.Config{MaxSequences: 5, MaxDraft: 6, Vocab: 37}
	play := func(least float64) map[string][]*engine.Record {
		d, err := (&Eagle3{Head: "random", MinConfidence: least}).Provision(Env{Backend: m.Backend(), Model: m, Vocab: 37})
		require.NoError(t, err)
		return records(t, m, cfg, "greedy", only(d), aroundBorders(6, sample.Params{}))
	}
	whole, never, early := play(0), play(1e-12), play(0.3)
	lengths := map[int]int{}
	for id, list := range whole {
		at := map[int64][]int32{}
		for i, r := range list {
			at[int64(r.Position)] = r.ProposedIDs
			require.Equal(t, r.ProposedIDs, never[id][i].ProposedIDs, "%s, step %d", id, i)
		}
		want, hashes := emitted(list)
		got, gotHashes := emitted(early[id])
		require.Equal(t, want, got)
		require.Equal(t, hashes, gotHashes)
		for _, r := range early[id] {
			lengths[len(r.ProposedIDs)]++
			if all, ok := at[int64(r.Position)]; ok && len(r.ProposedIDs) > 0 && len(r.ProposedIDs) <= len(all) {
				require.Equal(t, all[:len(r.ProposedIDs)], r.ProposedIDs, "%s at %d", id, r.Position)
			}
		}
	}
	require.Greater(t, len(lengths), 3, "drafts of many lengths: %v", lengths)
}

func TestShareOfTwo(t *testing.T) {
	row := make([]int32, kernels.StatCols)
	set := func(first, second float32) []int32 {
		row[kernels.StatLogit1], row[kernels.StatLogit2] = int32(math.Float32bits(first)), int32(math.Float32bits(second))
		return row
	}
	require.InDelta(t, 0.5, shareOfTwo(set(3, 3)), 1e-12)
	require.InDelta(t, 0.75, shareOfTwo(set(float32(math.Log(3)), 0)), 1e-7)
	require.True(t, math.IsNaN(shareOfTwo(set(float32(math.NaN()), 0))))
	require.ErrorContains(t, (&MTP{MinConfidence: 1}).Validate(), "min_confidence is 1; it must be at least 0 and below 1")
	require.ErrorContains(t, (&Eagle3{MinConfidence: -0.1}).Validate(), "min_confidence is -0.1")
}
