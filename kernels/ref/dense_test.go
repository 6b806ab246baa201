package ref

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// TestTensorStarts fails if the upgrade of assume-no-moving-gc is lost: the
// tensor package then panics when it is initialised.
func TestTensorStarts(t *testing.T) {
	b := newBuffer(kernels.Activations, kernels.BF16, 2, 3)
	require.Equal(t, []int{2, 3}, []int(b.t.Shape()))
}

func TestMatMulEqualsLoops(t *testing.T) {
	for _, s := range []struct{ n, k int }{{1, 1}, {1, 7}, {130, 33}, {128, 64}, {257, 16}} {
		r := newRig(t)
		w, x, res := r.random(s.n*s.k), r.random(3*s.k), r.random(3*s.n)
		dst := r.floats(kernels.BF16, 3, s.n, nil)
		r.q.MatMul(dst, r.load(kernels.Matrix, s.n, s.k, w), r.floats(kernels.BF16, 3, s.k, x),
			kernels.Linear{Act: kernels.Sigmoid, Residual: r.floats(kernels.F32, 3, s.n, res)})
		got := r.values(dst)
		for i := range 3 {
			for j := range s.n {
				var sum float64
				for l := range s.k {
					sum += w[j*s.k+l] * x[i*s.k+l]
				}
				want := 1/(1+math.Exp(-sum)) + res[i*s.n+j]
				require.InDelta(t, want, got[i*s.n+j], 1e-12)
			}
		}
	}
}

func TestMatMulRowsAlone(t *testing.T) {
	r := newRig(t)
	const n, k, rows = 192, 64, 9
	w := r.load(kernels.Matrix, n, k, r.random(n*k))
	x := r.floats(kernels.BF16, rows, k, r.random(rows*k))
	all := r.floats(kernels.BF16, rows, n, nil)
	r.q.MatMul(all, w, x, kernels.Linear{})
	for i := range rows {
		one := r.floats(kernels.BF16, 1, n, nil)
		r.q.MatMul(one, w, x.Slice(i, i+1), kernels.Linear{})
		require.Equal(t, r.values(all)[i*n:(i+1)*n], r.values(one))
	}
}

// TestMatMulKeepsNaN guards against products that skip zeros.
func TestMatMulKeepsNaN(t *testing.T) {
	r := newRig(t)
	w := r.random(256 * 8)
	w[3], w[8*200+1] = math.NaN(), math.Inf(1)
	dst := r.floats(kernels.F32, 1, 256, nil)
	r.q.MatMul(dst, r.load(kernels.Matrix, 256, 8, w), r.floats(kernels.BF16, 1, 8, make([]float64, 8)), kernels.Linear{})
	got := r.values(dst)
	require.True(t, math.IsNaN(got[0]))
	require.True(t, math.IsNaN(got[200]))
	require.Zero(t, got[1])
}

func TestSwiGLUWithNorm(t *testing.T) {
	r := newRig(t)
	const half, k = 5, 6
	g, u, x, nw := r.random(half*k), r.random(half*k), r.random(k), r.random(3)
	w, err := r.be.Load(kernels.Tensor{
		Name: "gate_up", Use: kernels.Matrix, Paired: true,
		Parts: []kernels.Source{source(half, k, g), source(half, k, u)},
	})
	require.NoError(t, err)
	dst := r.floats(kernels.BF16, 1, half, nil)
	r.q.MatMul(dst, w, r.floats(kernels.BF16, 1, k, x), kernels.Linear{
		Act: kernels.SwiGLU,
		In:  kernels.Norm{W: r.load(kernels.Vector, 1, 3, nw), Eps: 0.5, Centered: true, Group: 3},
	})
	y := make([]float64, k)
	for i := range y {
		at := i / 3 * 3
		mean := (x[at]*x[at] + x[at+1]*x[at+1] + x[at+2]*x[at+2]) / 3
		y[i] = x[i] / math.Sqrt(mean+0.5) * (1 + nw[i%3])
	}
	for j := range half {
		var a, b float64
		for i := range y {
			a += g[j*k+i] * y[i]
			b += u[j*k+i] * y[i]
		}
		require.InDelta(t, a/(1+math.Exp(-a))*b, r.values(dst)[j], 1e-12)
	}
}

func TestHalfWidens(t *testing.T) {
	for h, want := range map[uint16]float64{0x3c00: 1, 0xc000: -2, 0x0001: math.Ldexp(1, -24), 0x7bff: 65504, 0x7c00: math.Inf(1)} {
		require.Equal(t, want, half(h))
	}
	require.True(t, math.IsNaN(half(0x7e00)))
}

func TestReadRoundsToNearestEven(t *testing.T) {
	r := newRig(t)
	b := r.floats(kernels.BF16, 1, 4, []float64{1 + 1.0/256, 1 + 3.0/256, math.NaN(), -0.1})
	raw := make([]byte, b.Bytes())
	require.NoError(t, r.q.Read(raw, b).Wait())
	require.Equal(t, []byte{0x80, 0x3f, 0x82, 0x3f, 0xc0, 0x7f, 0xcd, 0xbd}, raw)
}
