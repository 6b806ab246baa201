package audit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Values of R's binom.test and of the closed forms at the ends.
func TestClopperPearson(t *testing.T) {
	low, high := ClopperPearson(7, 20, 0.05)
	require.InDelta(t, 0.1539092, low, 1e-6)
	require.InDelta(t, 0.5921885, high, 1e-6)
	low, high = ClopperPearson(0, 10, 0.05)
	require.Zero(t, low)
	require.InDelta(t, 1-math.Pow(0.025, 0.1), high, 1e-12)
	low, high = ClopperPearson(10, 10, 1e-6)
	require.InDelta(t, math.Pow(5e-7, 0.1), low, 1e-12)
	require.Equal(t, 1.0, high)
	low, high = ClopperPearson(0, 0, 0.05)
	require.Equal(t, []float64{0, 1}, []float64{low, high})
}

// Small tails keep their relative precision, against sums of exact terms.
func TestTail(t *testing.T) {
	require.InEpsilon(t, math.Pow(0.5, 100), tailAtLeast(100, 100, 0.5), 1e-9)
	require.InEpsilon(t, 101*math.Pow(0.5, 100), tailAtLeast(100, 99, 0.5), 1e-9)
	require.InDelta(t, 0.5+0.5*math.Exp(lchoose(100, 50)-100*math.Ln2), tailAtLeast(100, 50, 0.5), 1e-12)
	require.Equal(t, 1.0, tailAtLeast(5, 0, 0.3))
	require.Zero(t, tailAtLeast(5, 6, 0.3))
	require.Equal(t, 1.0, signTest(3, 3))
}

// Under the declared probabilities the test, looked at after every sample, says
// otherwise no more often than its level; of others it is sure soon.
func TestMixture(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const runs, level = 2000, 0.05
	alarms := 0
	for range runs {
		m := NewMixture([]float64{0, 0.4, 0.6})
		for range 300 {
			cell := 1
			if r.Float64() < 0.6 {
				cell = 2
			}
			m.Add(cell)
		}
		if m.P() < level {
			alarms++
		}
	}
	require.Less(t, alarms, int(runs*level))
	m := NewMixture([]float64{0, 0.5, 0.5})
	for range 2000 {
		cell := 1
		if r.Float64() < 0.7 { // 2.7 realised where 2.5 is declared
			cell = 2
		}
		m.Add(cell)
	}
	require.Less(t, m.P(), 1e-12)
	require.Zero(t, NewMixture([]float64{0, 1}).Add(0), "what can't happen did")
}

// Wald's test keeps its two errors, and stops early.
func TestSPRT(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	wrong := map[float64]int{}
	const runs, alpha, beta = 2000, 0.02, 0.05
	for _, rate := range []float64{0.5, 0.7} {
		samples := int64(0)
		for range runs {
			s := NewSPRT(0.5, 0.7, alpha, beta)
			for s.Add(r.Float64() < rate) == Undecided {
			}
			d, n := s.Decision()
			require.Equal(t, d, s.Add(true), "a decision stands")
			samples += n
			if (d == Other) != (rate == 0.7) {
				wrong[rate]++
			}
		}
		require.Less(t, samples/runs, int64(100))
	}
	require.Less(t, wrong[0.5], int(1.5*alpha*runs))
	require.Less(t, wrong[0.7], int(1.5*beta*runs))
}
