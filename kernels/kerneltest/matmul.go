package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// testMatMul compares products with ref over shapes and epilogues.
func testMatMul(t *testing.T, s suite) {
	for _, sh := range []struct{ rows, n, k int }{
		{64, 1, 32}, {1, 64, 64}, {1, 200, 96}, {3, 130, 96}, {8, 257, 192}, {33, 96, 576}, {70, 128, 64}, {2, 520, 1024},
	} {
		t.Run(fmt.Sprintf("%dx%dx%d", sh.rows, sh.n, sh.k), func(t *testing.T) {
			for _, e := range epilogues {
				s.judge(t, 7, e.bound, sh.rows, e.name, func(r *rig) kernels.Buf { return e.record(r, sh.rows, sh.n, sh.k) })
			}
		})
	}
	t.Run("Files", func(t *testing.T) {
		for _, d := range []kernels.DType{kernels.DTypeBF16, kernels.DTypeF16, kernels.DTypeF32} {
			// Values that every type holds, so that nothing is rounded.
			s.judge(t, 8, boundF32, 3, d.String(), func(r *rig) kernels.Buf {
				w := make([]float32, 40*64)
				for i := range w {
					w[i] = float32(r.rnd.IntN(255)-127) / 64
				}
				dst := r.alloc(kernels.F32, 3, 40)
				r.q.MatMul(dst, r.load(kernels.Matrix, d, 40, 64, w), r.put(kernels.BF16, 3, 64, r.normal(3*64, 1)), kernels.Linear{})
				return dst
			})
		}
	})
	t.Run("Stacked", func(t *testing.T) {
		r := s.rig(t, 9)
		a, b := r.normal(5*64, 1), r.normal(70*64, 1)
		w, err := r.be.Load(kernels.Tensor{Name: "stack", Use: kernels.Matrix, Parts: []kernels.Source{
			source("a", kernels.DTypeBF16, 5, 64, a), source("b", kernels.DTypeF32, 70, 64, b),
		}})
		require.NoError(t, err)
		x := r.put(kernels.BF16, 2, 64, r.normal(2*64, 1))
		whole, first, second := r.alloc(kernels.F32, 2, 75), r.alloc(kernels.F32, 2, 5), r.alloc(kernels.F32, 2, 70)
		r.q.MatMul(whole, w, x, kernels.Linear{})
		r.q.MatMul(first, r.load(kernels.Matrix, kernels.DTypeBF16, 5, 64, a), x, kernels.Linear{})
		r.q.MatMul(second, r.load(kernels.Matrix, kernels.DTypeBF16, 70, 64, b), x, kernels.Linear{})
		r.same(kernels.F32, r.bytes(first), r.bytes(whole.Columns(0, 5)), "first part")
		r.same(kernels.F32, r.bytes(second), r.bytes(whole.Columns(5, 75)), "second part")
	})
	t.Run("ResidualInPlace", func(t *testing.T) {
		r := s.rig(t, 10)
		w, x := r.matrix(64, 96), r.put(kernels.BF16, 6, 96, r.normal(6*96, 1))
		res, dst := r.put(kernels.BF16, 6, 64, r.normal(6*64, 1)), r.alloc(kernels.BF16, 6, 64)
		r.q.MatMul(dst, w, x, kernels.Linear{Residual: res})
		r.q.MatMul(res, w, x, kernels.Linear{Residual: res})
		r.same(kernels.BF16, r.bytes(dst), r.bytes(res), "residual in place")
	})
	t.Run("Bias", func(t *testing.T) { testBias(t, s) })
	t.Run("Blocks", func(t *testing.T) { testBlocks(t, s) })
	t.Run("NaN", func(t *testing.T) { testMatMulNaN(t, s) })
}

// testBias compares products with a bias with ref, and rows with rows alone; the bias
// is part of a longer one.
func testBias(t *testing.T, s suite) {
	const rows, n, k = 67, 200, 96
	record := func(r *rig) (w kernels.Weight, x kernels.Buf, l kernels.Linear) {
		w, x = r.matrix(n, k), r.put(kernels.BF16, rows, k, r.normal(rows*k, 1))
		l = kernels.Linear{Bias: r.vector(n+7, -1, 1), BiasFrom: 5, Act: kernels.Sigmoid, Residual: r.put(kernels.F32, rows, n, r.normal(rows*n, 1))}
		return w, x, l
	}
	s.judge(t, 20, boundF32, rows, "bias", func(r *rig) kernels.Buf {
		w, x, l := record(r)
		dst := r.alloc(kernels.F32, rows, n)
		r.q.MatMul(dst, w, x, l)
		return dst
	})
	s.judge(t, 21, boundBF16, rows, "bias alone", func(r *rig) kernels.Buf {
		w, x, l := record(r)
		l.Act, l.Residual = kernels.Identity, kernels.Buf{}
		dst := r.alloc(kernels.BF16, rows, n)
		r.q.MatMul(dst, w, x, l)
		return dst
	})
	r := s.rig(t, 22)
	w, x, l := record(r)
	l.Residual = kernels.Buf{}
	r.rowsAlone(rows, r.alloc(kernels.F32, rows, n), func(dst kernels.Buf, from, to int) { r.q.MatMul(dst, w, x.Slice(from, to), l) })
}

// testBlocks compares products with block-diagonal matrices with ref, and rows with
// rows alone.
func testBlocks(t *testing.T, s suite) {
	for _, c := range []struct{ rows, blocks, n, k int }{{1, 3, 40, 26}, {5, 2, 130, 64}, {140, 5, 72, 34}, {67, 1, 200, 96}} {
		record := func(r *rig, kind kernels.Kind) (dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
			x = r.put(kernels.BF16, c.rows, c.blocks*c.k+32, r.normal(c.rows*(c.blocks*c.k+32), 1)).Columns(32, c.blocks*c.k+32)
			return r.alloc(kind, c.rows, c.blocks*c.n), r.diagonal(c.blocks, c.n, c.k), x
		}
		for kind, bound := range map[kernels.Kind]float64{kernels.BF16: boundBF16, kernels.F32: boundF32} {
			s.judge(t, 23, bound, c.rows, fmt.Sprintf("%d blocks of [%d, %d]", c.blocks, c.n, c.k), func(r *rig) kernels.Buf {
				dst, w, x := record(r, kind)
				r.q.Blocks(dst, w, x)
				return dst
			})
		}
		if c.rows == 67 || c.rows == 140 {
			r := s.rig(t, 24)
			dst, w, x := record(r, kernels.BF16)
			r.rowsAlone(c.rows, dst, func(dst kernels.Buf, from, to int) { r.q.Blocks(dst, w, x.Slice(from, to)) })
		}
	}
}

// epilogue is a way to surround a product.
type epilogue struct {
	name     string
	bound    float64
	dst      kernels.Kind
	in       bool // norm of the input
	act      kernels.Act
	residual kernels.Kind // 0 is none
}

var epilogues = []epilogue{
	{"logits", boundF32, kernels.F32, false, kernels.Identity, 0},
	{"normed logits", boundTwo, kernels.F32, true, kernels.Identity, 0},
	{"bf16", boundBF16, kernels.BF16, false, kernels.Identity, 0},
	{"normed bf16", boundTwo, kernels.BF16, true, kernels.Identity, 0},
	{"residual", boundBF16, kernels.BF16, false, kernels.Identity, kernels.BF16},
	{"f32 residual", boundF32, kernels.F32, false, kernels.Identity, kernels.F32},
	{"silu", boundBF16, kernels.BF16, false, kernels.SiLU, 0},
	{"sigmoid with residual", boundBF16, kernels.BF16, false, kernels.Sigmoid, kernels.BF16},
	{"swiglu", boundBF16, kernels.BF16, false, kernels.SwiGLU, 0},
	{"normed swiglu", boundLayer, kernels.BF16, true, kernels.SwiGLU, 0},
	{"swiglu with residual", boundBF16, kernels.BF16, false, kernels.SwiGLU, kernels.F32},
}

// record records the product on fresh operands; x is a column view of a wider
// buffer.
func (e epilogue) record(r *rig, rows, n, k int) kernels.Buf {
	var w kernels.Weight
	if e.act == kernels.SwiGLU {
		w = r.paired(n, k)
	} else {
		w = r.matrix(n, k)
	}
	x := r.put(kernels.BF16, rows, k+32, r.normal(rows*(k+32), 1)).Columns(32, k+32)
	l := kernels.Linear{Act: e.act}
	if e.in {
		l.In = r.norm(k, true)
	}
	if e.residual != 0 {
		l.Residual = r.put(e.residual, rows, n, r.normal(rows*n, 1))
	}
	dst := r.alloc(e.dst, rows, n)
	r.q.MatMul(dst, w, x, l)
	return dst
}

// testMatMulNaN checks that a NaN weight and an infinite activation are not lost
// against zeros, and stay in their row and column.
func testMatMulNaN(t *testing.T, s suite) {
	r := s.rig(t, 11)
	w := r.normal(70*64, 1)
	w[66*64+5] = float32(math.NaN())
	x := make([]float32, 3*64)
	x[64+9] = float32(math.Inf(1))
	dst := r.alloc(kernels.F32, 3, 70)
	r.q.MatMul(dst, r.load(kernels.Matrix, kernels.DTypeBF16, 70, 64, w), r.put(kernels.BF16, 3, 64, x), kernels.Linear{})
	for i, v := range r.floats(dst) {
		row, col := i/70, i%70
		switch {
		case col == 66:
			require.True(t, v != v, "row %d: the NaN weight is lost", row)
		case row == 1:
			require.True(t, math.IsInf(float64(v), 0) || v != v, "column %d: the infinite activation is lost", col)
		default:
			require.Zero(t, v, "row %d column %d", row, col)
		}
	}
}

// testDenseRows checks that a row of a product or norm alone is the row in any
// batch.
func testDenseRows(t *testing.T, s suite) {
	const rows = 67
	for _, e := range epilogues {
		t.Run(e.name, func(t *testing.T) {
			r := s.rig(t, 12)
			const n, k = 200, 192
			var w kernels.Weight
			if e.act == kernels.SwiGLU {
				w = r.paired(n, k)
			} else {
				w = r.matrix(n, k)
			}
			x := r.put(kernels.BF16, rows, k, r.normal(rows*k, 1))
			l, res := kernels.Linear{Act: e.act}, kernels.Buf{}
			if e.in {
				l.In = r.norm(k, false)
			}
			if e.residual != 0 {
				res = r.put(e.residual, rows, n, r.normal(rows*n, 1))
			}
			r.rowsAlone(rows, r.alloc(e.dst, rows, n), func(dst kernels.Buf, from, to int) {
				l := l
				if !res.None() {
					l.Residual = res.Slice(from, to)
				}
				r.q.MatMul(dst, w, x.Slice(from, to), l)
			})
		})
	}
	t.Run("norm", func(t *testing.T) {
		r := s.rig(t, 13)
		x, n := r.put(kernels.F32, rows, 192, r.uniform(rows*192, -1, 1)), r.norm(192, true)
		r.rowsAlone(rows, r.alloc(kernels.BF16, rows, 192), func(dst kernels.Buf, from, to int) {
			r.q.Norm(dst, x.Slice(from, to), n)
		})
	})
}

// rowsAlone records op over single rows and over ranges of many sizes and
// offsets, and requires equal rows.
func (r *rig) rowsAlone(rows int, dst kernels.Buf, op func(dst kernels.Buf, from, to int)) {
	r.t.Helper()
	for i := range rows {
		op(dst.Slice(i, i+1), i, i+1)
	}
	want := r.rows(dst)
	for _, n := range []int{2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, rows} {
		from := r.rnd.IntN(rows - n + 1)
		r.q.Write(dst, make([]byte, dst.Bytes()))
		op(dst.Slice(from, from+n), from, from+n)
		for i, row := range r.rows(dst.Slice(from, from+n)) {
			r.same(dst.Kind, want[from+i], row, "row %d in a batch of %d from %d", from+i, n, from)
		}
	}
}
