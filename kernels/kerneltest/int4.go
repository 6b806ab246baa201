package kerneltest

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// int4Source returns a random part of 4 bits; bits are the significant bits of its
// scales. With 4 bits, BF16 holds every weight.
func (r *rig) int4Source(name string, rows, cols, group, bits int, zeros bool) kernels.Source {
	raw, groups := make([]byte, rows*cols/2), rows*cols/group
	for i := range raw {
		raw[i] = byte(r.rnd.Uint32())
	}
	scales, z := make([]float32, groups), make([]byte, groups)
	for i := range scales {
		n := 1<<(bits-1) + r.rnd.IntN(1<<(bits-1))
		scales[i] = float32(math.Ldexp(float64(n), -bits-2)) / float32(math.Sqrt(float64(cols)))
		scales[i] = math.Float32frombits(math.Float32bits(scales[i]) &^ (1<<(24-bits) - 1))
		z[i] = byte(r.rnd.IntN(16))
	}
	q := &kernels.Int4{Group: group, Scales: bytes.NewReader(pack(kernels.BF16, scales))}
	if zeros {
		q.Zeros = bytes.NewReader(z)
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeInt4, Data: bytes.NewReader(raw), Int4: q}
}

// dequantized is a part of 4 bits as F32.
func (r *rig) dequantized(s kernels.Source) kernels.Source {
	q, err := s.ReadInt4(0, s.Rows)
	require.NoError(r.t, err)
	x := make([]float32, s.Rows*s.Cols)
	for i := range s.Rows {
		q.Dequantize(x[i*s.Cols:(i+1)*s.Cols], i)
	}
	return source(s.Name, kernels.DTypeF32, s.Rows, s.Cols, x)
}

func (r *rig) loadParts(paired bool, parts ...kernels.Source) kernels.Weight {
	r.t.Helper()
	w, err := r.be.Load(kernels.Tensor{Name: "int4", Use: kernels.Matrix, Paired: paired, Parts: parts})
	require.NoError(r.t, err)
	return w
}

// testInt4 compares products of 4-bit weights with ref; with the same weights
// dequantised first, where BF16 holds them, bit for bit; and rows with rows alone.
func testInt4(t *testing.T, s suite) {
	for _, sh := range []struct{ rows, n, k, group int }{
		{64, 1, 32, 32}, {1, 64, 64, 64}, {1, 200, 96, 32}, {3, 130, 128, 128}, {8, 257, 192, 64}, {33, 96, 640, 128}, {70, 128, 64, 64}, {2, 520, 1024, 128},
	} {
		t.Run(fmt.Sprintf("%dx%dx%d/%d", sh.rows, sh.n, sh.k, sh.group), func(t *testing.T) {
			for i, zeros := range []bool{false, true} {
				s.judge(t, uint64(15+i), boundF32, sh.rows, "general scales", func(r *rig) kernels.Buf {
					w := r.loadParts(false, r.int4Source("w", sh.n, sh.k, sh.group, 8, zeros))
					dst := r.alloc(kernels.F32, sh.rows, sh.n)
					r.q.MatMul(dst, w, r.put(kernels.BF16, sh.rows, sh.k, r.normal(sh.rows*sh.k, 1)), kernels.Linear{})
					return dst
				})
				for _, e := range epilogues {
					s.int4Twin(t, e, sh.rows, sh.n, sh.k, sh.group, zeros)
				}
			}
		})
	}
	t.Run("Rows", func(t *testing.T) {
		const rows, n, k = 67, 200, 192
		r := s.rig(t, 18)
		w, x := r.loadParts(false, r.int4Source("w", n, k, 64, 8, true)), r.put(kernels.BF16, rows, k, r.normal(rows*k, 1))
		in := r.norm(k, false)
		r.rowsAlone(rows, r.alloc(kernels.BF16, rows, n), func(dst kernels.Buf, from, to int) {
			r.q.MatMul(dst, w, x.Slice(from, to), kernels.Linear{In: in})
		})
	})
	t.Run("Bad", func(t *testing.T) { testInt4Bad(t, s) })
}

// int4Twin requires the bits of the product with the dequantised matrix.
func (s suite) int4Twin(t *testing.T, e epilogue, rows, n, k, group int, zeros bool) {
	r := s.rig(t, 17)
	paired := e.act == kernels.SwiGLU
	parts := []kernels.Source{r.int4Source("a", n, k, group, 4, zeros)}
	if paired {
		parts = append(parts, r.int4Source("b", n, k, group, 4, !zeros))
	}
	var wide []kernels.Source
	for _, p := range parts {
		wide = append(wide, r.dequantized(p))
	}
	l := kernels.Linear{Act: e.act}
	if e.in {
		l.In = r.norm(k, true)
	}
	if e.residual != 0 {
		l.Residual = r.put(e.residual, rows, n, r.normal(rows*n, 1))
	}
	x := r.put(kernels.BF16, rows, k+32, r.normal(rows*(k+32), 1)).Columns(32, k+32)
	want, got := r.alloc(e.dst, rows, n), r.alloc(e.dst, rows, n)
	r.q.MatMul(want, r.loadParts(paired, wide...), x, l)
	r.q.MatMul(got, r.loadParts(paired, parts...), x, l)
	r.same(e.dst, r.bytes(want), r.bytes(got), "%s", e.name)
}

// testInt4Bad checks that parameters that make no sense are errors that name the
// tensor.
func testInt4Bad(t *testing.T, s suite) {
	r := s.rig(t, 19)
	for name, change := range map[string]func(t *kernels.Tensor){
		"no scales":        func(t *kernels.Tensor) { t.Parts[0].Int4.Scales = nil },
		"nothing about it": func(t *kernels.Tensor) { t.Parts[0].Int4 = nil },
		"group of 48":      func(t *kernels.Tensor) { t.Parts[0].Int4.Group = 48 },
		"indivisible":      func(t *kernels.Tensor) { t.Parts[0].Int4.Group = 128 },
		"a vector":         func(t *kernels.Tensor) { t.Use = kernels.Vector },
		"stacked with bf16": func(t *kernels.Tensor) {
			t.Parts = append(t.Parts, source("b", kernels.DTypeBF16, 1, 64, make([]float32, 64)))
		},
		"other groups":      func(t *kernels.Tensor) { t.Parts = append(t.Parts, r.int4Source("b", 4, 64, 32, 8, false)) },
		"short weights":     func(t *kernels.Tensor) { t.Parts[0].Data = bytes.NewReader(make([]byte, 4*32-1)) },
		"short scales":      func(t *kernels.Tensor) { t.Parts[0].Int4.Scales = bytes.NewReader(make([]byte, 7)) },
		"short zero points": func(t *kernels.Tensor) { t.Parts[0].Int4.Zeros = bytes.NewReader(make([]byte, 3)) },
		"zero point 16":     func(t *kernels.Tensor) { t.Parts[0].Int4.Zeros = bytes.NewReader([]byte{0, 16, 0, 0}) },
		"infinite scale": func(t *kernels.Tensor) {
			t.Parts[0].Int4.Scales = bytes.NewReader([]byte{0x80, 0x7f, 0, 0, 0, 0, 0, 0})
		},
		"subnormal scale": func(t *kernels.Tensor) { t.Parts[0].Int4.Scales = bytes.NewReader([]byte{1, 0, 0, 0, 0, 0, 0, 0}) },
		"failing to read": func(t *kernels.Tensor) { t.Parts[0].Int4.Scales = broken{} },
	} {
		x := kernels.Tensor{Name: "stacked.q", Use: kernels.Matrix, Parts: []kernels.Source{r.int4Source("a", 4, 64, 64, 8, true)}}
		change(&x)
		_, err := r.be.Load(x)
		require.ErrorContains(t, err, "stacked.q", name)
		switch name {
		case "failing to read":
			require.ErrorIs(t, err, errBroken)
		case "short weights", "short scales", "short zero points":
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
	}
	require.NoError(t, r.q.Err())
	w := r.loadParts(false, r.int4Source("a", 4, 64, 64, 8, true))
	r.q.Embed(r.alloc(kernels.BF16, 1, 64), w, r.putInts(1, 1, 0))
	require.ErrorContains(t, r.q.Err(), "embed")
}
