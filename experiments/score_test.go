package experiments

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The largest logits, against sorting all of them; equal ones by id.
func TestTopLogits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		row := make([]float32, 1+r.IntN(20))
		all := make([]TopLogit, len(row))
		for i := range row {
			row[i] = float32(r.IntN(8))
			all[i] = TopLogit{int32(i), row[i]}
		}
		slices.SortStableFunc(all, func(a, b TopLogit) int { return int(b.Logit) - int(a.Logit) })
		for _, n := range []int{1, 2, 5} {
			require.Equal(t, all[:min(n, len(all))], topLogits(row, n), "%v", row)
		}
	}
}

func TestLogProb(t *testing.T) {
	row := []float32{1000, 999, -1000}
	sum := 0.0
	for id := range row {
		sum += math.Exp(logProb(row, int32(id)))
	}
	require.InDelta(t, 1, sum, 1e-12)
	require.InDelta(t, -math.Log1p(math.Exp(-1)), logProb(row, 0), 1e-12)
	require.InDelta(t, -1, logProb(row, 1)-logProb(row, 0), 1e-12)
}

func TestMedianAndSpread(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	require.Equal(t, Spread{}, spread(nil))
	require.Equal(t, Spread{Count: 11, Min: 0, Median: 5, P90: 9, Max: 10}, spread([]float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}))
}
