package cpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

func silu(x float64) float64    { return x / (1 + math.Exp(-x)) }
func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// product is x wᵀ in float64.
func product(x, w []float64, rows, n, k int) []float64 {
	y := make([]float64, rows*n)
	for r := range rows {
		for i := range n {
			for j := range k {
				y[r*n+i] += x[r*k+j] * w[i*k+j]
			}
		}
	}
	return y
}

func normed(x, w []float64, cols int, eps float64, centered bool) []float64 {
	y := make([]float64, len(x))
	for r := 0; r < len(x); r += cols {
		sum := 0.0
		for _, v := range x[r : r+cols] {
			sum += v * v
		}
		s := 1 / math.Sqrt(sum/float64(cols)+eps)
		for i := range cols {
			g := w[i]
			if centered {
				g++
			}
			y[r+i] = x[r+i] * s * g
		}
	}
	return y
}

func TestMatMul(t *testing.T) {
	for _, set := range sets() {
		for _, rows := range []int{1, 3, 6, 7, 8, 12, 13, 40} {
			for _, c := range []struct{ n, k int }{{64, 64}, {8, 2}, {200, 130}, {96, 2100}} {
				t.Run(fmt.Sprint(set, rows, c), func(t *testing.T) {
					t.Parallel()
					r := newRig(t, 2, set)
					w, wx := r.matrix(1, c.n, c.k)
					x := random(2, rows*c.k, 1)
					xb := r.put16(rows, c.k, x)
					want := product(wide(x), wide(wx), rows, c.n, c.k)
					f := r.alloc(kernels.F32, rows, c.n)
					r.q.MatMul(f, w, xb, kernels.Linear{})
					near(t, want, r.getF32(f), 1e-5, "f32")
					h := r.alloc(kernels.BF16, rows, c.n)
					r.q.MatMul(h, w, xb, kernels.Linear{Act: kernels.SiLU})
					for i, v := range want {
						want[i] = silu(v)
					}
					near(t, want, widened(r.get16(h)), 1.0/250, "silu")
				})
			}
		}
	}
}

// TestMatMulStream compares weights that are taken to come from memory, product after
// product, with the same weights taken to be in a cache.
func TestMatMulStream(t *testing.T) {
	const n, k = 200, 2100 // 7 halves of panels
	for _, set := range sets() {
		var want []float32
		for _, from := range []int{streamBytes, 0} {
			r := newRig(t, 2, set)
			r.b.stream = from
			w, _ := r.matrix(1, n, k)
			gate, up := random(3, n*k, 0.2), random(4, n*k, 0.2)
			pair := r.load(kernels.Matrix, true, part("gate", n, k, gate), part("up", n, k, up))
			var out []kernels.Buf
			for _, rows := range []int{1, 2, 7, 8, 13} {
				x := r.put16(rows, k, random(2, rows*k, 1))
				for _, w := range []kernels.Weight{w, pair, pair, w, w} {
					cols := n
					if w == pair {
						cols = 2 * n
					}
					out = append(out, r.alloc(kernels.F32, rows, cols))
					r.q.MatMul(out[len(out)-1], w, x, kernels.Linear{})
				}
			}
			var got []float32
			for _, y := range out {
				got = append(got, r.getF32(y)...)
			}
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, set)
		}
	}
}

func TestMatMulNormResidual(t *testing.T) {
	const n, k = 150, 96
	for _, rows := range []int{1, 5, 20} {
		r := newRig(t, 2, "")
		w, wx := r.matrix(1, n, k)
		g, gx := r.vector(2, k, 0.3)
		x, res := random(3, rows*k, 2), random(4, rows*n, 1)
		xb, y := r.put16(rows, k, x), r.put16(rows, n, res)
		r.q.MatMul(y, w, xb, kernels.Linear{In: kernels.Norm{W: g, Eps: 1e-6, Centered: true}, Residual: y})
		want := product(normed(wide(x), wide(gx), k, 1e-6, true), wide(wx), rows, n, k)
		for i, v := range wide(res) {
			want[i] += v
		}
		near(t, want, widened(r.get16(y)), 1.0/150, "norm and residual")
	}
}

func TestMatMulPaired(t *testing.T) {
	const half, k = 90, 64
	for _, rows := range []int{1, 8, 33} {
		r := newRig(t, 2, "")
		gate, up := random(1, half*k, 0.2), random(2, half*k, 0.2)
		w := r.load(kernels.Matrix, true, part("gate", half, k, gate), part("up", half, k, up))
		x := random(3, rows*k, 1)
		xb := r.put16(rows, k, x)
		g, u := product(wide(x), wide(gate), rows, half, k), product(wide(x), wide(up), rows, half, k)
		y := r.alloc(kernels.BF16, rows, half)
		r.q.MatMul(y, w, xb, kernels.Linear{Act: kernels.SwiGLU})
		want := make([]float64, rows*half)
		for i := range want {
			want[i] = silu(g[i]) * u[i]
		}
		near(t, want, widened(r.get16(y)), 1.0/200, "swiglu")
		both := r.alloc(kernels.F32, rows, 2*half)
		r.q.MatMul(both, w, xb, kernels.Linear{})
		got := r.getF32(both)
		for i := range rows {
			near(t, g[i*half:(i+1)*half], got[2*i*half:][:half], 1e-5, "gate")
			near(t, u[i*half:(i+1)*half], got[(2*i+1)*half:][:half], 1e-5, "up")
		}
		ids := r.putI32(0, half-1, half, 2*half-1)
		e := r.alloc(kernels.BF16, 4, k)
		r.q.Embed(e, w, ids)
		require.Equal(t, append(append(append(append([]uint16{}, gate[:k]...), gate[(half-1)*k:]...), up[:k]...), up[(half-1)*k:]...), r.get16(e))
	}
}

// A row gives the same bits in every batch, with every number of threads and
// every kernel set.
func TestMatMulRowsAlone(t *testing.T) {
	const rows, n, k = 70, 300, 1030
	x := random(2, rows*k, 1)
	var want []uint16
	for _, set := range sets() {
		for _, threads := range []int{1, 2, 3} {
			r := newRig(t, threads, set)
			w, _ := r.matrix(1, n, k)
			xb := r.put16(rows, k, x)
			y := r.alloc(kernels.BF16, rows, n)
			for _, step := range []int{rows, 1, 4, 7, 12, 13, 33} {
				for i := 0; i < rows; i += step {
					to := min(i+step, rows)
					r.q.MatMul(y.Slice(i, to), w, xb.Slice(i, to), kernels.Linear{})
				}
				got := r.get16(y)
				if want == nil {
					want = got
				}
				require.Equal(t, want, got, "%s, %d threads, steps of %d", set, threads, step)
			}
		}
	}
}
