package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// randomInt4 is a part of 4 bits with zero points and scales of all their bits.
func randomInt4(seed uint64, rows, cols, group int) kernels.Source {
	r := rand.New(rand.NewPCG(seed, 4))
	raw, zeros := make([]byte, rows*cols/2), make([]byte, rows*cols/group)
	var scales []byte
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	for i := range zeros {
		zeros[i] = byte(r.IntN(16))
		s := vec.BF16(float32(math.Abs(r.NormFloat64()) / 8 / math.Sqrt(float64(cols))))
		scales = append(scales, byte(s), byte(s>>8))
	}
	return kernels.Source{
		Name: "part", Rows: rows, Cols: cols, DType: kernels.DTypeInt4, Data: bytes.NewReader(raw),
		Int4: &kernels.Int4{Group: group, Scales: bytes.NewReader(scales), Zeros: bytes.NewReader(zeros)},
	}
}

// TestInt4Chain holds the products of all sets to their definition: dequantise, then
// add the exact products one by one in FP32, the odd one of a pair first.
func TestInt4Chain(t *testing.T) {
	for _, c := range []struct{ rows, n, k, group int }{{1, 33, 64, 64}, {5, 70, 384, 128}, {9, 64, 96, 32}, {40, 130, 640, 64}} {
		src := randomInt4(uint64(c.n), c.n, c.k, c.group)
		q, err := src.ReadInt4(0, c.n)
		require.NoError(t, err)
		x := random(2, c.rows*c.k, 1)
		want, row, xs := make([]float32, c.rows*c.n), make([]float32, c.k), wide(x)
		for o := range c.n {
			q.Dequantize(row, o)
			for r := range c.rows {
				acc := float32(0)
				for k := 0; k < c.k; k += 2 {
					for _, j := range []int{k + 1, k} {
						acc = float32(float64(row[j])*xs[r*c.k+j] + float64(acc))
					}
				}
				want[r*c.n+o] = acc
			}
		}
		for _, set := range sets() {
			r := newRig(t, 2, set)
			w := r.load(kernels.Matrix, false, src)
			dst := r.alloc(kernels.F32, c.rows, c.n)
			r.q.MatMul(dst, w, r.put16(c.rows, c.k, x), kernels.Linear{})
			got := r.getF32(dst)
			require.True(t, slices.Equal(want, got), "%s %v", set, c)
		}
	}
}

// BenchmarkInt4 compares products of few rows at hidden size 4096 with those of a
// BF16 matrix, interleaved; the weights are larger than the caches.
func BenchmarkInt4(b *testing.B) {
	r := newRig(b, 0, "")
	const n, k, parts = 12288, 4096, 4
	var wide, narrow [parts]kernels.Weight
	for i := range parts {
		wide[i] = r.load(kernels.Matrix, false, kernels.Source{Name: "w", Rows: n, Cols: k, DType: kernels.DTypeBF16, Data: noise{}})
		narrow[i] = r.load(kernels.Matrix, false, randomInt4(uint64(i), n, k, 64))
	}
	for _, rows := range []int{1, 2, 4, 8} {
		x, dst := r.put16(rows, k, random(2, rows*k, 1)), r.alloc(kernels.F32, rows, n)
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			pair := interleaved(b, func(int4 bool) {
				for i := range parts {
					w := wide[i]
					if int4 {
						w = narrow[i]
					}
					r.q.MatMul(dst, w, x, kernels.Linear{})
				}
				require.NoError(b, r.q.Err())
			})
			b.ReportMetric(pair, "ratio")
		})
	}
}

// interleaved times f with and without 4 bits in turn and returns the ratio of the
// medians.
func interleaved(b *testing.B, f func(int4 bool)) float64 {
	var times [2][]float64
	for b.Loop() {
		for i, int4 := range []bool{false, true} {
			start := time.Now()
			f(int4)
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	return times[1][len(times[1])/2] / times[0][len(times[0])/2]
}
