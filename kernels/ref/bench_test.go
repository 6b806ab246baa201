package ref

import (
	"fmt"
	"testing"

	"exacta.dev/exacta/kernels"
)

// BenchmarkProducts is the matrix part of a model of ten million parameters, in
// 40 products, for a step of one row and a chunk of 64.
func BenchmarkProducts(b *testing.B) {
	for _, rows := range []int{1, 64} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			r := newRig(b)
			var ws []kernels.Weight
			for range 40 {
				ws = append(ws, r.load(kernels.Matrix, 512, 512, r.random(512*512)))
			}
			x, y := r.floats(kernels.BF16, rows, 512, r.random(rows*512)), r.floats(kernels.BF16, rows, 512, nil)
			for b.Loop() {
				for _, w := range ws {
					r.q.MatMul(y, w, x, kernels.Linear{})
				}
				if err := r.q.Err(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
