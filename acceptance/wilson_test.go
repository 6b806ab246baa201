package acceptance

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuantile(t *testing.T) {
	for confidence, z := range map[float64]float64{
		0.5: 0.674489750196, 0.6826894921370859: 1, 0.8: 1.281551565545, 0.9: 1.644853626951, 0.95: 1.959963984540, 0.99: 2.575829303549, 0.999: 3.290526731492,
	} {
		require.Equal(t, z, Quantile(confidence), "confidence %v", confidence)
	}
}

// The examples of R. G. Newcombe, Two-sided confidence intervals for the single
// proportion, Statistics in Medicine 17, 1998, table I, method 3.
func TestWilsonAgainstNewcombe(t *testing.T) {
	for _, c := range []struct {
		count, of int64
		low, high float64
	}{
		{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718},
	} {
		s := NewShare(c.count, c.of, 1, Quantile(0.95))
		require.Equal(t, float64(c.count)/float64(c.of), s.Rate)
		require.InDelta(t, c.low, s.Low, 5e-5, "%d of %d", c.count, c.of)
		require.InDelta(t, c.high, s.High, 5e-5, "%d of %d", c.count, c.of)
	}
}

// The bounds are where the score statistic is z, and lie around the share; of
// none or all they end at 0 or 1.
func TestWilsonSolvesScoreEquation(t *testing.T) {
	for _, z := range []float64{0.7, 1.96, 3.3} {
		for _, n := range []int64{1, 2, 7, 100, 12345} {
			for count := int64(0); count <= n; count += max(1, n/7) {
				s := NewShare(count, n, 1, z)
				require.LessOrEqual(t, s.Low, s.Rate)
				require.GreaterOrEqual(t, s.High, s.Rate)
				for _, bound := range []float64{s.Low, s.High} {
					if bound == 0 || bound == 1 {
						continue
					}
					score := math.Abs(s.Rate-bound) / math.Sqrt(bound*(1-bound)/float64(n))
					require.InDelta(t, z, score, 1e-6, "%d of %d", count, n)
				}
				require.Equal(t, count == 0, s.Low == 0)
				require.Equal(t, count == n, s.High == 1)
				// Trials that were counted three times are no more evidence.
				three := NewShare(3*count, 3*n, 3, z)
				require.Equal(t, []float64{s.Rate, s.Low, s.High}, []float64{three.Rate, three.Low, three.High})
			}
		}
	}
	require.Equal(t, Share{High: 1}, NewShare(0, 0, 1, 1.96))
	for n := range int64(2000) { // not by a rounding error either
		require.Zero(t, NewShare(0, n, 1, Quantile(0.95)).Low)
		require.Equal(t, 1.0, NewShare(n, n, 1, Quantile(0.95)).High)
	}
}

// The interval holds the true share about as often as it says, by the exact
// distribution of the count.
func TestWilsonCoverage(t *testing.T) {
	const n = 60
	z := Quantile(0.95)
	mean, shares := 0.0, 0
	for p := 0.02; p < 0.99; p += 0.01 {
		covered := 0.0
		for count := range int64(n + 1) {
			if s := NewShare(count, n, 1, z); s.Low <= p && p <= s.High {
				covered += math.Exp(choose2(n, float64(count)) + float64(count)*math.Log(p) + float64(n-count)*math.Log(1-p))
			}
		}
		require.Greater(t, covered, 0.89, "share %v", p)
		mean += covered
		shares++
	}
	require.InDelta(t, 0.95, mean/float64(shares), 0.006)
}

// choose2 is the logarithm of the binomial coefficient.
func choose2(n, k float64) float64 {
	lg := func(x float64) float64 { v, _ := math.Lgamma(x + 1); return v }
	return lg(n) - lg(k) - lg(n-k)
}
