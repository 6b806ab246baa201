package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// BenchmarkMixture measures the experts of rows of the shape of Qwen3-30B-A3B's, 8 of
// 40, beside plain products with as many matrices of their size, one row each: what
// the weights' bytes cost, of which few rows read those of 8 and many share those of
// all.
func BenchmarkMixture(b *testing.B) {
	const experts, each, hidden, inter = 40, 8, 2048, 768
	r := newRig(b, 0, "")
	bank := func(paired bool, n, k int) kernels.Weight {
		t := kernels.Tensor{Name: "bank", Use: kernels.Bank, Paired: paired}
		for range experts {
			p := kernels.Source{Name: "w", Rows: n, Cols: k, DType: kernels.DTypeBF16, Data: noise{}}
			if t.Parts = append(t.Parts, p); paired {
				t.Parts = append(t.Parts, p)
			}
		}
		w, err := r.b.Load(t)
		require.NoError(b, err)
		return w
	}
	up, down := bank(true, inter, hidden), bank(false, hidden, inter)
	one := func(paired bool, n, k int) kernels.Weight {
		p := kernels.Source{Name: "w", Rows: n, Cols: k, DType: kernels.DTypeBF16, Data: noise{}}
		if paired {
			return r.load(kernels.Matrix, true, p, p)
		}
		return r.load(kernels.Matrix, false, p)
	}
	var ups, downs []kernels.Weight
	for range experts {
		ups, downs = append(ups, one(true, inter, hidden)), append(downs, one(false, hidden, inter))
	}
	for _, rows := range []int{1, 4, 512} {
		x, h, y := r.alloc(kernels.BF16, rows, hidden), r.alloc(kernels.BF16, rows*each, inter), r.alloc(kernels.BF16, rows, hidden)
		var ids [16]kernels.Buf
		for i := range ids {
			var v []int32
			for range rows {
				for _, e := range rand.Perm(experts)[:each] {
					v = append(v, int32(e))
				}
			}
			ids[i] = r.alloc(kernels.I32, rows, each)
			r.q.Write(ids[i], rawI32(v))
		}
		weights := r.alloc(kernels.F32, rows, each)
		const flops = 3 * hidden * inter
		b.Run(fmt.Sprintf("experts/rows=%d", rows), func(b *testing.B) {
			for i := range b.N {
				r.q.Experts(h, up, x, ids[i%16], kernels.SwiGLU)
				r.q.Mix(y, down, h, ids[i%16], weights, y)
				require.NoError(b, r.q.Err())
			}
			b.ReportMetric(float64(rows*each*flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
		b.Run(fmt.Sprintf("products/rows=%d", rows), func(b *testing.B) {
			n := max(1, rows*each/experts)
			for i := range b.N {
				for j := range min(experts, rows*each) {
					e := (i*each + j) % experts
					r.q.MatMul(h.Top(n), ups[e], x.Top(n), kernels.Linear{Act: kernels.SwiGLU})
					r.q.MatMul(y.Top(n), downs[e], h.Top(n), kernels.Linear{})
				}
				require.NoError(b, r.q.Err())
			}
			b.ReportMetric(float64(min(experts, rows*each)*n*flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
