package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// correlated returns inputs that share a few directions, as activations do.
func correlated(r *rand.Rand, n, cols int) [][]float32 {
	base := make([][]float32, 8)
	for i := range base {
		for range cols {
			base[i] = append(base[i], float32(r.NormFloat64()))
		}
	}
	rows := make([][]float32, n)
	for i := range rows {
		row := make([]float32, cols)
		for _, b := range base {
			a := float32(r.NormFloat64())
			for j, v := range b {
				row[j] += a * v
			}
		}
		for j := range row {
			row[j] += float32(r.NormFloat64()) * 0.3
		}
		rows[i] = row
	}
	return rows
}

func normals(r *rand.Rand, n int) []float32 {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(r.NormFloat64())
	}
	return w
}

// loss is the squared error of the products with inputs.
func loss(w []float32, m *Matrix, inputs [][]float32) (sum float64) {
	back := m.dequantize()
	for r := range m.Rows {
		for _, x := range inputs {
			d := 0.0
			for c, v := range x {
				d += float64(v) * float64(w[r*m.Cols+c]-back[r*m.Cols+c])
			}
			sum += d * d
		}
	}
	return sum
}

func TestGPTQBeatsRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const rows, cols = 20, 128
	for _, o := range []Options{{32, false}, {64, true}, {128, false}} {
		seen, held := correlated(r, 600, cols), [][]float32(nil)
		seen, held = seen[:400], seen[400:]
		w := normals(r, rows*cols)
		m := NewMoments(cols)
		m.Add(seen[:150])
		m.Add(seen[150:])
		require.Equal(t, 400, m.Count)
		plain, err := RoundToNearest("w", w, rows, cols, o)
		require.NoError(t, err)
		fit, err := GPTQ("w", append([]float32(nil), w...), rows, cols, m, o)
		require.NoError(t, err)
		require.Less(t, loss(w, fit, held), 0.5*loss(w, plain, held), "%+v", o)
	}
}

// TestFactor: UᵀU is the inverse of the damped moments.
func TestFactor(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	const n = 24
	m := NewMoments(n)
	m.Add(correlated(r, 100, n))
	u, diag, err := m.factor()
	require.NoError(t, err)
	mean := 0.0
	for _, d := range diag {
		mean += d / n
	}
	at := func(i, j int) float64 {
		v := m.Sum[max(i, j)*n+min(i, j)]
		if i == j {
			v += damping * mean
		}
		return v
	}
	for i := range n {
		for j := range n {
			sum := 0.0 // of (UᵀU) H
			for k := range n {
				inv := 0.0
				for l := range n {
					inv += u[l*n+i] * u[l*n+k]
				}
				sum += inv * at(k, j)
			}
			want := 0.0
			if i == j {
				want = 1
			}
			require.InDelta(t, want, sum, 1e-6, "%d %d", i, j)
		}
	}
	_, _, err = NewMoments(4).factor()
	require.ErrorContains(t, err, "nothing can be learned")
}

// TestRoundToNearest: every weight is within half a step, and the file's numbers are
// those of kernels.Int4.
func TestRoundToNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	for _, group := range kernels.Int4Groups {
		for _, zeros := range []bool{false, true} {
			w := normals(r, 5*256)
			for i := range 256 {
				w[i] = 0 // a row of zeros
			}
			m, err := RoundToNearest("w", w, 5, 256, Options{group, zeros})
			require.NoError(t, err)
			back := m.dequantize()
			for i, v := range w {
				step := widenScale(m.Scales[i/group])
				bound := 0.6 * step // a scale rounded to BF16 may be short of the extremes
				if !zeros {
					bound = 1.1 * step // the seventh step is where the eighth would be
				}
				require.InDelta(t, v, back[i], bound, "group %d, zeros %v, element %d", group, zeros, i)
			}
		}
	}
	_, err := RoundToNearest("some.weight", make([]float32, 96), 1, 96, Options{64, false})
	require.ErrorContains(t, err, "group 64 does not divide the 96 columns of some.weight")
	_, err = RoundToNearest("w", nil, 1, 96, Options{48, false})
	require.ErrorContains(t, err, "must be one of")
}
