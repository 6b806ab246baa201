package outside

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBinomialTailIsTheSum(t *testing.T) {
	for _, c := range []struct {
		n int64
		p float64
	}{{10, 0.3}, {57, 0.02}, {200, 0.9}} {
		sum := 0.0
		for k := c.n; k >= 0; k-- {
			lg := func(v int64) float64 { g, _ := math.Lgamma(float64(v + 1)); return g }
			sum += math.Exp(lg(c.n) - lg(k) - lg(c.n-k) + float64(k)*math.Log(c.p) + float64(c.n-k)*math.Log1p(-c.p))
			require.InEpsilon(t, sum, binomialTail(k, c.n, c.p), 1e-9, "%d of %d at %v", k, c.n, c.p)
		}
		at := binomialCritical(c.n, c.p, 1e-3)
		require.LessOrEqual(t, binomialTail(at, c.n, c.p), 1e-3)
		require.Greater(t, binomialTail(at-1, c.n, c.p), 1e-3)
	}
	require.Zero(t, binomialTail(11, 10, 0.5))
	require.Equal(t, 1.0, binomialTail(0, 10, 0.5))
}

func TestExactBoundsHoldTheRate(t *testing.T) {
	// The known 95 % two-sided bounds of 7 of 10.
	require.InDelta(t, 0.3475, lowerRate(7, 10, 0.025), 1e-3)
	require.InDelta(t, 0.9333, upperRate(7, 10, 0.025), 1e-3)
	require.InDelta(t, 1, upperRate(10, 10, 0.025), 1e-9)
}

func TestRankTest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	sample := func(n int, shift float64) []float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = r.NormFloat64() + shift
		}
		return v
	}
	alarms := 0
	for range 200 {
		if _, p := rankTest(sample(60, 0), sample(80, 0)); p < 0.01 {
			alarms++
		}
	}
	require.Less(t, alarms, 10, "a level of 0.01 in 200 trials")
	u, p := rankTest(sample(100, 0), sample(100, 1))
	require.Greater(t, u, 0.65)
	require.Less(t, p, testAlpha)
	_, p = rankTest([]float64{1, 1, 1}, []float64{1, 1})
	require.Equal(t, 1.0, p, "all equal")
	require.InDelta(t, 0.5+rankDetects(100, 100, testAlpha), 0.72, 0.01)
}

func TestMeanBound(t *testing.T) {
	require.Less(t, meanBound(3000, 3, 1.6, 1.8), testAlpha)
	require.Greater(t, meanBound(100, 3, 1.6, 1.8), testAlpha)
	require.Equal(t, 1.0, meanBound(100, 3, 1.6, 1.6))
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{3, 1, 2, 4}))
	require.True(t, math.IsNaN(median(nil)))
}
