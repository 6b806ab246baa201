package verify

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same test sees rules that are wrong.
func TestEnumerationCatches(t *testing.T) {
	c := enumeration()[1]
	for name, broken := range map[string]func() *rejection{
		"the residual is p": func() *rejection {
			r := newRejection()
			r.residual = func([]float64, []float32, int32) {}
			return r
		},
		"the residual is p without the draft": func() *rejection {
			r := newRejection()
			r.residual = func(w []float64, _ []float32, draft int32) { w[draft] = 0 }
			return r
		},
		"the residual is |p - q|": func() *rejection {
			r := newRejection()
			r.residual = func(w []float64, q []float32, _ int32) {
				for i := range w {
					w[i] = math.Abs(w[i] - float64(q[i]))
				}
			}
			return r
		},
		"q is not normalised": func() *rejection {
			r := newRejection()
			r.residual = func(w []float64, q []float32, _ int32) {
				for i := range w {
					w[i] = max(0, w[i]-1.001*float64(q[i]))
				}
			}
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			tv := variation(t, broken(), c, 1)
			t.Logf("total variation %.2g", tv)
			require.Greater(t, tv, 1e-5)
		})
	}
}

// It sees a wrong residual of block verification too.
func TestBlockEnumerationCatches(t *testing.T) {
	c := enumeration()[1]
	for name, residual := range map[string]func(b *block, n int, q []float32, draft int32) float64{
		"the residual is M_b": func(b *block, n int, q []float32, draft int32) float64 {
			s := b.leave(n, q, draft)
			b.weights = widen(b.weights, b.rows[n])
			return s
		},
		"the drafts do not stand": func(b *block, n int, q []float32, draft int32) float64 {
			stands := b.stands[n]
			b.stands[n] = 1
			defer func() { b.stands[n] = stands }()
			return b.leave(n, q, draft)
		},
		"M_s is not normalised": func(b *block, n int, q []float32, draft int32) float64 {
			s := b.leave(n, q, draft)
			return 1.001 * s
		},
	} {
		r := newBlock()
		r.residual = residual
		tv := variation(t, r, c, 1)
		t.Logf("%s: total variation %.2g", name, tv)
		require.Greater(t, tv, 1e-5, name)
	}
}
