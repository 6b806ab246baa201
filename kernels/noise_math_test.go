package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ours and the library's are each within one unit in the last place, so within
// two of each other.
func TestExpLog(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		x := -math.Pow(10, -12+15*r.Float64())
		want := math.Exp(x)
		require.InDelta(t, want, Exp(x), 4.5e-16*want+1e-323, "Exp(%g)", x)
		u := uniform(r.Uint64() >> r.IntN(52))
		want = math.Log(u)
		require.InDelta(t, want, Log(u), 4.5e-16*math.Abs(want), "Log(%g)", u)
	}
	require.Equal(t, 1.0, Exp(0))
	require.Equal(t, 0.0, Exp(math.Inf(-1)))
	require.Equal(t, 0.0, Exp(-746))
	require.Equal(t, 0.0, Log(1))
	require.Greater(t, Exp(-745), 0.0)
}

// The bits of a few values, each within one unit in the last place of the true
// value: they may not depend on processor or compiler.
func TestExpLogBits(t *testing.T) {
	for _, c := range []struct {
		x          float64
		exp, logOf uint64 // bits of Exp(-x), Log(x)
	}{
		{0.1, 0x3fecf46d99d52b3a, 0xc0026bb1bbb55515},
		{0.6931471805599453, 0x3fe0000000000000, 0xbfd774f29bdd6b9f},
		{3.25, 0x3fa3da368521902d, 0x3ff2dbc55768deb3},
		{700.5, 0xc4ff475c68ca02, 0x401a3509950c84a7},
		{744, 0x2, 0x401a72bae291ac29},
	} {
		require.Equal(t, c.exp, math.Float64bits(Exp(-c.x)), "Exp(-%v)", c.x)
		require.Equal(t, c.logOf, math.Float64bits(Log(c.x)), "Log(%v)", c.x)
	}
}

// minus log is a draw from the exponential distribution whose bound the race
// relies on.
func TestExponentialBound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1_000_000 {
		u := uniform(r.Uint64() >> r.IntN(40))
		require.GreaterOrEqual(t, -Log(u), (1-u)*(1-0x1p-40))
	}
}
