package kerneltest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testMoves checks the operations that copy: bits, never arithmetic.
func testMoves(t *testing.T, s suite) {
	t.Run("Embed", func(t *testing.T) {
		r := s.rig(t, 1)
		const vocab, k = 37, 64
		x := r.normal(vocab*k, 1)
		ids := []int32{36, 0, 5, 5, 17}
		var want []float32
		for _, id := range ids {
			want = append(want, x[id*k:(id+1)*k]...)
		}
		for _, d := range []kernels.DType{kernels.DTypeBF16, kernels.DTypeF32} {
			dst := r.alloc(kernels.BF16, len(ids)+2, 3*k)
			view := dst.Slice(1, len(ids)+1).Columns(k, 2*k)
			r.q.Embed(view, r.load(kernels.Matrix, d, vocab, k, x), r.putInts(len(ids), 1, ids...))
			require.Equal(t, want, r.floats(view), d)
			require.Equal(t, make([]float32, 3*k), r.floats(dst.Top(1)), "row before the view")
			require.Equal(t, make([]float32, (len(ids)+2)*k), r.floats(dst.Columns(2*k, 3*k)), "columns beside the view")
		}
	})
	t.Run("EmbedRoundsOnce", func(t *testing.T) {
		s.judge(t, 2, boundBF16, 3, "embed of an F32 file", func(r *rig) kernels.Buf {
			dst := r.alloc(kernels.BF16, 3, 96)
			r.q.Embed(dst, r.load(kernels.Matrix, kernels.DTypeF32, 9, 96, r.uniform(9*96, -1, 1)), r.putInts(3, 1, 8, 2, 0))
			return dst
		})
	})
	for _, k := range []kernels.Kind{kernels.BF16, kernels.F32, kernels.I32} {
		t.Run("Indexed/"+k.String(), func(t *testing.T) { testIndexed(t, s, k) })
	}
}

// testIndexed checks Gather, Scatter and Copy on one kind, through column views.
func testIndexed(t *testing.T, s suite, k kernels.Kind) {
	r := s.rig(t, 3)
	const rows, cols = 7, 24
	raw := make([]byte, rows*cols*k.Size())
	for i := range raw {
		raw[i] = byte(r.rnd.IntN(100)) // no NaN
	}
	whole := r.alloc(k, rows, cols)
	r.q.Write(whole, raw)
	src := whole.Columns(8, 20)
	in := r.rows(src)
	zero := make([]byte, len(in[0]))

	idx := []int32{6, -1, 2, 2, 0, -5}
	dst := r.alloc(k, len(idx), 16)
	r.q.Write(dst, bytes.Repeat([]byte{7}, dst.Bytes()))
	r.q.Gather(dst.Columns(1, 13), src, r.putInts(len(idx), 1, idx...))
	require.Equal(t, bytes.Repeat([]byte{7}, 3*k.Size()), r.bytes(dst.Slice(1, 2).Columns(13, 16)), "columns beside the view")
	for i, row := range r.rows(dst.Columns(1, 13)) {
		want := zero
		if idx[i] >= 0 {
			want = in[idx[i]]
		}
		require.Equal(t, want, row, "gather row %d", i)
	}

	// Row indices may be a column of a wider table.
	table := r.putInts(rows, 3, 9, 4, 9, 9, -1, 9, 9, 0, 9, 9, 8, 9, 9, 1, 9, 9, -1, 9, 9, 2, 9)
	to := []int{4, -1, 0, 8, 1, -1, 2}
	out := r.alloc(k, 9, 12)
	fill := bytes.Repeat([]byte{7}, out.Bytes())
	r.q.Write(out, fill)
	r.q.Scatter(out, src, table.Columns(1, 2))
	want := cut(append([]byte(nil), fill...), 9)
	for i, n := range to {
		if n >= 0 {
			copy(want[n], in[i])
		}
	}
	require.Equal(t, want, r.rows(out), "scatter")

	r.q.Copy(out.Slice(2, 2+rows), src)
	for i := range in {
		copy(want[2+i], in[i])
	}
	require.Equal(t, want, r.rows(out), "copy")
}

// testNorm compares norms with ref.
func testNorm(t *testing.T, s suite) {
	for _, kind := range []kernels.Kind{kernels.BF16, kernels.F32} {
		for _, c := range []struct {
			cols, group int
			centered    bool
		}{{64, 0, false}, {192, 0, true}, {576, 0, false}, {256, 64, true}, {96, 32, false}} {
			name := fmt.Sprintf("%s/cols=%d/group=%d/centered=%t", kind, c.cols, c.group, c.centered)
			t.Run(name, func(t *testing.T) {
				s.judge(t, 4, boundBF16, 5, "norm", func(r *rig) kernels.Buf {
					n := c.group
					if n == 0 {
						n = c.cols
					}
					norm := r.norm(n, c.centered)
					norm.Group = c.group
					dst := r.alloc(kernels.BF16, 5, c.cols+32)
					x := r.put(kind, 5, c.cols, r.normal(5*c.cols, 3))
					r.q.Norm(dst.Columns(32, c.cols+32), x, norm)
					return dst.Columns(32, c.cols+32)
				})
			})
		}
	}
	t.Run("Layer", func(t *testing.T) {
		for _, kind := range []kernels.Kind{kernels.BF16, kernels.F32} {
			s.judge(t, 4, boundBF16, 5, "layer norm", func(r *rig) kernels.Buf {
				norm, dst := r.norm(72, false), r.alloc(kernels.BF16, 5, 72)
				norm.Bias = r.vector(72, -1, 1)
				x := r.normal(5*72, 1)
				for i := range x {
					x[i] = toBF16(x[i] + 2)
				}
				r.q.Norm(dst, r.put(kind, 5, 72, x), norm)
				return dst
			})
		}
	})
	t.Run("InPlace", func(t *testing.T) {
		r := s.rig(t, 5)
		x := r.put(kernels.BF16, 4, 64, r.normal(4*64, 1))
		n, dst := r.norm(64, true), r.alloc(kernels.BF16, 4, 64)
		r.q.Norm(dst, x, n)
		r.q.Norm(x, x, n)
		r.same(kernels.BF16, r.bytes(dst), r.bytes(x), "norm in place")
	})
	t.Run("None", func(t *testing.T) {
		r := s.rig(t, 6)
		x, dst := r.put(kernels.BF16, 4, 64, r.normal(4*64, 1)), r.alloc(kernels.BF16, 4, 64)
		r.q.Norm(dst, x, kernels.Norm{})
		require.Equal(t, r.bytes(x), r.bytes(dst))
	})
}
