package kerneltest

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// Bounds on ‖out-ref‖ / ‖ref‖ of a whole result. Rounding to BF16 alone gives
// about 0.0017 (relative errors up to 2^-9, uniform mantissas).
const (
	boundF32  = 2e-5   // FP32 arithmetic, no rounding to BF16
	boundBF16 = 0.0025 // one rounding to BF16
	boundTwo  = 0.004  // a rounded input of a product and a rounded result
	// boundLayer is for a layer with FP32 insides whose operands may be
	// rounded to BF16 on the way (cached keys and values, convolved
	// inputs) and whose result is.
	boundLayer = 0.006
)

// near requires got to be within bound of want as a whole: of 300 rows, one that
// is wrong alone gives 0.08. Single rows may be ill-conditioned (a norm of a sum
// that cancels), so nine in ten must be within twice the bound, measured on
// the row or on the root mean square of all rows, whichever is larger.
func near(t *testing.T, bound float64, want, got []float32, rows int, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	n := len(want) / rows
	diff, norm := make([]float64, rows), make([]float64, rows)
	var diffs, norms float64
	for i := range rows {
		for j := i * n; j < (i+1)*n; j++ {
			d := float64(got[j]) - float64(want[j])
			diff[i] += d * d
			norm[i] += float64(want[j]) * float64(want[j])
		}
		require.False(t, math.IsNaN(diff[i]), "%s: row %d has a NaN", what, i)
		diffs, norms = diffs+diff[i], norms+norm[i]
	}
	require.LessOrEqual(t, math.Sqrt(diffs), bound*math.Sqrt(norms), "%s: far from the reference as a whole", what)
	far := 0
	for i := range rows {
		if math.Sqrt(diff[i]) > 2*bound*math.Sqrt(max(norm[i], norms/float64(rows))) {
			far++
		}
	}
	require.LessOrEqual(t, far, rows/10, "%s: rows far from the reference", what)
}

// judge runs a script on the backend and on ref with equal numbers and compares
// what it returns.
func (s suite) judge(t *testing.T, seed uint64, bound float64, rows int, what string, script func(r *rig) kernels.Buf) {
	t.Helper()
	want, got := refRig(t, seed), s.rig(t, seed)
	near(t, bound, want.floats(script(want)), got.floats(script(got)), rows, what)
}

// same requires equal bits (for Float64 backends: at most one unit of the kind
// apart). Any NaN equals any other.
func (r *rig) same(k kernels.Kind, want, got []byte, format string, args ...any) {
	r.t.Helper()
	require.Len(r.t, got, len(want), append([]any{format}, args...)...)
	if string(want) == string(got) {
		return
	}
	var allowed int64
	if r.o.Float64 && k != kernels.I32 {
		allowed = 1
	}
	size := k.Size()
	for i := 0; i < len(want); i += size {
		if d := distance(k, want[i:i+size], got[i:i+size]); d > allowed {
			require.Failf(r.t, "other bits", format+": element %d is % x, not % x (%d units apart)",
				append(args, i/size, got[i:i+size], want[i:i+size], d)...)
		}
	}
}

// distance counts the representable values between two elements.
func distance(k kernels.Kind, a, b []byte) int64 {
	if k == kernels.I32 {
		return abs(int64(unpackInts(a)[0]) - int64(unpackInts(b)[0]))
	}
	x, y := unpack(k, a)[0], unpack(k, b)[0]
	if x != x || y != y {
		if x != x && y != y {
			return 0
		}
		return math.MaxInt64
	}
	shift := 0
	if k == kernels.BF16 {
		shift = 16
	}
	return abs(ordinal(x)>>shift - ordinal(y)>>shift)
}

// ordinal maps float32 to integers in order; -0 is just below +0.
func ordinal(f float32) int64 {
	b := int64(math.Float32bits(f))
	if b>>31 != 0 {
		return -(b & 0x7fffffff) - 1
	}
	return b
}

func abs(x int64) int64 { return max(x, -x) }
