package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// TestTop2Cases covers ties, infinities, NaN and long rows whose best elements
// come late.
func TestTop2Cases(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	late := make([]float32, 1000)
	late[700], late[999] = 2, 3
	ties := make([]float32, 300)
	ties[100], ties[200], ties[250] = 5, 5, 5
	rising := make([]float32, 500)
	for i := range rising {
		rising[i] = float32(i)
	}
	nans := make([]float32, 200)
	for i := range nans {
		nans[i] = nan
	}
	nans[150], nans[170] = -inf, -inf
	for name, tc := range map[string]struct {
		x              []float32
		i1, i2, nNaN   int
		value1, value2 float32
	}{
		"empty":         {nil, -1, -1, 0, -inf, -inf},
		"one":           {[]float32{7}, 0, -1, 0, 7, -inf},
		"minus inf":     {[]float32{-inf, -inf, -inf}, 0, 1, 0, -inf, -inf},
		"NaN first":     {[]float32{nan, 1, nan, 2}, 3, 1, 2, 2, 1},
		"all NaN":       {[]float32{nan, nan}, -1, -1, 2, -inf, -inf},
		"late":          {late, 999, 700, 0, 3, 2},
		"ties":          {ties, 100, 200, 0, 5, 5},
		"rising":        {rising, 499, 498, 0, 499, 498},
		"mostly NaN":    {nans, 150, 170, 198, -inf, -inf},
		"tie at second": {[]float32{1, 9, 1, 1}, 1, 0, 0, 9, 1},
	} {
		for _, s := range Sets() {
			i1, i2, v1, v2, n := s.Top2(tc.x)
			require.Equal(t, []any{tc.i1, tc.i2, tc.value1, tc.value2, tc.nNaN}, []any{i1, i2, v1, v2, n}, "%s: %s", s.Name, name)
		}
	}
}

func TestMaxCases(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	for _, s := range Sets() {
		require.Equal(t, -inf, s.Max(nil))
		require.Equal(t, -inf, s.Max([]float32{nan, nan}))
		require.Equal(t, float32(3), s.Max([]float32{nan, 3, nan, -inf}))
		require.Zero(t, math.Float32bits(s.Max([]float32{negZero, -1})), "%s: a zero is +0", s.Name)
	}
}

func TestHashSegmentIsTheKernels(t *testing.T) {
	x := make([]float32, kernels.HashSegment)
	for i := range x {
		x[i] = float32(i)
	}
	for _, s := range Sets() {
		require.Equal(t, kernels.HashSegmentOf(x), s.HashSegment(x))
	}
}

// TestLengthMismatch: a source that is too short is a broken invariant and stops
// before memory is touched.
func TestLengthMismatch(t *testing.T) {
	for _, s := range Sets() {
		require.Panics(t, func() { s.SiLU(make([]float32, 20), make([]float32, 19)) }, s.Name)
		require.Panics(t, func() { s.SwiGLUBF16(make([]uint16, 20), make([]float32, 20), make([]float32, 4)) }, s.Name)
		require.Panics(t, func() { s.MatVec(make([]float32, 16), make([]float32, 31), 16, make([]float32, 2)) }, s.Name)
		require.Panics(t, func() { s.RotateHalf(make([]float32, 31), make([]float32, 16), make([]float32, 16)) }, s.Name)
	}
}

// TestNoAllocation: no primitive allocates.
func TestNoAllocation(t *testing.T) {
	f, g, h := make([]float32, 200), make([]float32, 200), make([]uint16, 400)
	in := &[4][]uint16{nil, h[100:120]}
	for _, s := range Sets() {
		n := testing.AllocsPerRun(3, func() {
			s.Gemm(&f[0], 64, &h[0], 4, &h[1], 6, 2, 1, false)
			s.ToBF16(h[:100], f[:100])
			s.SumSquares(f)
			s.ExpSub(f, g, 1)
			s.Max(f)
			s.NormGateBF16(h[:70], f[:70], 1, g[:70], h[100:170], true)
			s.MatVec(f[:32], g, 32, f[:3])
			s.MatVecAdd2(f[:16], f[16:32], g, 16, g[:3], g[:3])
			s.RotateHalf(f[:64], g[:32], g[32:64])
			s.Conv4BF16(h[:20], g[:80], in)
			s.Top2(f)
			s.HashSegment(f)
		})
		require.Zero(t, n, s.Name)
	}
}

// TestPeak: the loops run and count what they say; Pause returns.
func TestPeak(t *testing.T) {
	for _, s := range testSets() {
		require.Positive(t, s.Peak(10), s.Name)
		require.Equal(t, 2*s.Peak(10), s.Peak(20), s.Name)
	}
	Pause()
}

// TestFloatStateRestored: the FMA kernels set flush-to-zero for themselves alone.
func TestFloatStateRestored(t *testing.T) {
	f, h := make([]float32, 64*14), make([]uint16, 128*4)
	small := []float32{0x1p-130}
	for _, s := range testSets() {
		for _, m := range []int{1, 3, 7, 14} {
			s.Gemm(&f[0], 64, &h[0], 4, &h[0], 2, m, 1, false)
			require.Equal(t, float32(0x1p-131), small[0]*0.5, s.Name)
		}
	}
}
