package vec

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// ulps returns |got - want| in units of the last place of float32 at want.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e, -125)-24)
}

func TestExp32Accuracy(t *testing.T) {
	worst, at := 0.0, float32(0)
	check := func(x float32) {
		if u := ulps(Exp32(x), math.Exp(float64(x))); u > worst {
			worst, at = u, x
		}
	}
	// Every 97th float32 from the cut-off to the limit, both signs.
	for b := uint32(0); b <= math.Float32bits(expMax); b += 97 {
		check(math.Float32frombits(b))
	}
	for b := uint32(0); b <= math.Float32bits(-expCut); b += 97 {
		check(-math.Float32frombits(b))
	}
	t.Logf("worst error %.3f ulp at %v", worst, at)
	require.Less(t, worst, 1.0)
}

func TestExp32Edges(t *testing.T) {
	inf := float32(math.Inf(1))
	const hi, lo = float32(expMax), float32(expCut)
	require.Equal(t, float32(1), Exp32(0))
	require.Equal(t, inf, Exp32(inf))
	require.Zero(t, math.Float32bits(Exp32(-inf)))
	require.True(t, math.IsNaN(float64(Exp32(float32(math.NaN())))))
	require.False(t, math.IsInf(float64(Exp32(hi)), 0))
	require.Equal(t, inf, Exp32(math.Nextafter32(hi, inf)))
	require.Greater(t, Exp32(lo), float32(0))
	require.GreaterOrEqual(t, math.Float32bits(Exp32(lo)), uint32(0x00800000), "no subnormal result")
	require.Zero(t, math.Float32bits(Exp32(math.Nextafter32(lo, -inf))))
	// The limits are the last arguments whose results are normal numbers.
	require.Greater(t, math.Exp(float64(math.Nextafter32(hi, inf))), float64(math.MaxFloat32))
	require.Less(t, math.Exp(float64(math.Nextafter32(lo, -inf))), 0x1p-126)
}

func TestSoftplusSigmoidAccuracy(t *testing.T) {
	var sp, sg, si float64
	for x := float32(-80); x < 80; x += 1.0 / 1024 {
		e := math.Exp(-float64(x))
		sp = max(sp, ulps(Softplus32(x), max(float64(x), 0)+math.Log1p(math.Exp(-math.Abs(float64(x))))))
		sg = max(sg, ulps(Sigmoid32(x), 1/(1+e)))
		si = max(si, ulps(SiLU32(x), float64(x)/(1+e)))
	}
	t.Logf("worst errors in ulp: softplus %.3f sigmoid %.3f silu %.3f", sp, sg, si)
	require.Less(t, sp, 2.5)
	require.Less(t, sg, 2.5)
	require.Less(t, si, 3.0)
	inf := math.Inf(1)
	require.Equal(t, float32(inf), Softplus32(float32(inf)))
	require.Zero(t, Softplus32(float32(-inf)))
	require.True(t, math.IsNaN(float64(Softplus32(float32(math.NaN())))))
	require.Equal(t, float32(1), Sigmoid32(float32(inf)))
	require.Zero(t, Sigmoid32(float32(-inf)))
}

func TestBF16(t *testing.T) {
	// Round to nearest even of a normal number, against float64 arithmetic.
	for b := uint32(0x00800000); b < 0x7f7f0000; b += 1237 {
		x := math.Float32frombits(b)
		lo, hi := F32(uint16(b>>16)), F32(uint16(b>>16)+1)
		dl, dh := float64(x)-float64(lo), float64(hi)-float64(x)
		want := uint16(b >> 16)
		if dh < dl || dh == dl && want&1 == 1 {
			want++
		}
		require.Equal(t, want, BF16(x))
		require.Equal(t, want|0x8000, BF16(-x))
	}
	require.Equal(t, uint16(0x7f80), BF16(math.MaxFloat32), "rounds to infinity")
	require.Equal(t, uint16(0x8000), BF16(math.Float32frombits(0x807fffff)), "subnormal to signed zero")
	require.Equal(t, uint16(0x7fc0), BF16(math.Float32frombits(0x7f800001)), "NaN is made quiet")
	require.Equal(t, uint16(0xffff), BF16(math.Float32frombits(0xffffffff)), "NaN does not overflow")
	require.Equal(t, uint16(0xff80), BF16(float32(math.Inf(-1))))
}
