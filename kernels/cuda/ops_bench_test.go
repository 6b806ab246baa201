//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// load puts random numbers from lo to hi into a weight of FP32.
func (r *rates) load(use kernels.Use, rows, cols int, lo, hi float64) kernels.Weight {
	rnd, raw := rand.New(rand.NewPCG(5, 6)), []byte{}
	for range rows * cols {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(lo+(hi-lo)*rnd.Float64())))
	}
	w, err := r.be.Load(kernels.Tensor{Name: "w", Use: use, Parts: []kernels.Source{
		{Name: "w", Rows: rows, Cols: cols, DType: kernels.DTypeF32, Data: bytes.NewReader(raw)},
	}})
	require.NoError(r.t, err)
	return w
}

// each times one of n operations in a row.
func (r *rates) each(n int, op func(q kernels.Queue, i int)) float64 {
	return r.time(func(q kernels.Queue) {
		for i := range n {
			op(q, i)
		}
	}) / float64(n)
}

// random returns a buffer of random numbers.
func (r *rates) random(rows, cols int) kernels.Buf {
	b := r.alloc(kernels.BF16, rows, cols)
	r.fill(r.be.bufs[b.ID].ptr, int64(rows*cols*2), 1)
	return b
}

// rowOps times operations on rows.
func (r *rates) rowOps() {
	const many = 32
	for _, rows := range []int{1, 4, 64} {
		for _, cols := range []int{2048, 4096, 5120} {
			x, dst, n := r.random(rows, cols), r.alloc(kernels.BF16, rows, cols), kernels.Norm{W: r.load(kernels.Vector, 1, cols, 0, 1), Eps: 1e-6}
			took := r.each(many, func(q kernels.Queue, _ int) { q.Norm(dst, x, n) })
			fmt.Printf("norm   %3d rows of %6d %8.2f us\n", rows, cols, took*1e6)
		}
		logits := r.alloc(kernels.F32, rows, 256)
		r.fill(r.be.bufs[logits.ID].ptr, int64(rows*256*4), 1)
		ids, by := r.alloc(kernels.I32, rows, 8), r.alloc(kernels.F32, rows, 8)
		took := r.each(many, func(q kernels.Queue, _ int) {
			q.Route(ids, by, logits, &kernels.RouteSpec{K: 8, Normalize: true, Scale: 1})
		})
		fmt.Printf("route  %3d rows of    256 %8.2f us\n", rows, took*1e6)
		x, dst := r.random(rows, 4096), r.alloc(kernels.BF16, rows, 4096)
		took = r.each(many, func(q kernels.Queue, _ int) { q.Copy(dst, x) })
		fmt.Printf("copy   %3d rows of   4096 %8.2f us\n", rows, took*1e6)
	}
	for _, rows := range []int{1, 4, 64, 256} {
		const vocab = 151936
		logits, dst := r.alloc(kernels.F32, rows, vocab), r.alloc(kernels.I32, rows, kernels.StatCols)
		r.fill(r.be.bufs[logits.ID].ptr, int64(rows*vocab*4), 1)
		took := r.each(4, func(q kernels.Queue, _ int) { q.Stats(dst, logits, vocab, true) })
		fmt.Printf("stats  %3d rows of %6d %8.2f us, %.2f TB/s\n", rows, vocab, took*1e6, float64(rows*vocab*4)/took/1e12)
		r.be.Free(logits)
	}
}

// spans is a batch of n sequences of at tokens, each with a span of rows.
func (r *rates) spans(c kernels.Caches, n, rows, at int) kernels.Batch {
	b, err := kernels.NewBatch(r.be, n, n*rows, n*rows)
	require.NoError(r.t, err)
	b.MaxLen = rows
	write := func(dst kernels.Buf, each int, f func(span, i int) int) {
		var raw []byte
		for s := range n {
			for i := range each {
				raw = binary.LittleEndian.AppendUint32(raw, uint32(int32(f(s, i))))
			}
		}
		r.q.Write(dst, raw)
	}
	write(b.Seq, 1, func(s, _ int) int { return s })
	write(b.Start, 1, func(int, int) int { return at })
	write(b.Len, 1, func(int, int) int { return rows })
	write(b.RowOff, 1, func(s, _ int) int { return s * rows })
	write(b.Pos, rows, func(_, i int) int { return at + i })
	write(b.Parent, rows, func(_, i int) int { return i - 1 })
	write(b.Span, rows, func(s, _ int) int { return s })
	write(c.Len(), 1, func(int, int) int { return at })
	return b
}

// deltas times the Gated DeltaNet layers of Qwen3.6-35B-A3B.
func (r *rates) deltas() {
	l := kernels.LayerSpec{Kind: kernels.Delta, KHeads: 16, VHeads: 32, KDim: 128, VDim: 128, Conv: 4}
	s := &kernels.DeltaSpec{
		KHeads: l.KHeads, VHeads: l.VHeads, KDim: l.KDim, VDim: l.VDim, Conv: l.Conv, Gate: kernels.SiLU,
		Taps: r.load(kernels.Taps, channels(l), l.Conv, -1, 1), ALog: r.load(kernels.Vector, 1, l.VHeads, -2, 1),
		DtBias: r.load(kernels.Vector, 1, l.VHeads, -1, 1), Norm: kernels.Norm{W: r.load(kernels.Vector, 1, l.VDim, 0, 1), Eps: 1e-6},
	}
	for _, c := range []struct{ n, rows, at, layers int }{{1, 1, 540, 24}, {1, 4, 540, 24}, {8, 1, 540, 8}, {64, 1, 540, 2}, {64, 4, 540, 2}, {1, 512, 0, 4}, {1, 4096, 0, 1}} {
		spec := kernels.CacheSpec{Slots: c.n, MaxDraft: 7}
		for range c.layers {
			spec.Layers = append(spec.Layers, l)
		}
		cs, err := r.be.Caches(spec)
		require.NoError(r.t, err)
		b, rows := r.spans(cs, c.n, c.rows, c.at), c.n*c.rows
		proj, dst := r.random(rows, channels(l)+l.VHeads*l.VDim+2*l.VHeads), r.alloc(kernels.BF16, rows, l.VHeads*l.VDim)
		took := r.each(c.layers, func(q kernels.Queue, i int) { q.Delta(dst, proj, cs.Layer(i), &b, s) })
		bytes := float64(c.n * l.VHeads * l.KDim * l.VDim * 4)
		fmt.Printf("delta  %3d x %4d rows at %d %8.2f us a layer, states at %.2f TB/s\n", c.n, c.rows, c.at, took*1e6, bytes/took/1e12)
		require.NoError(r.t, cs.Close())
		r.be.Free(proj)
		r.be.Free(dst)
	}
}

// attention times layers of Qwen3-8B and of 0.6B.
func (r *rates) attention(cp float64) {
	for _, c := range []struct{ q, kv, n, rows, at, layers int }{
		{16, 8, 1, 1, 512, 16}, {32, 8, 1, 1, 512, 16}, {32, 8, 1, 4, 512, 16}, {32, 8, 1, 1, 8000, 8}, {32, 8, 1, 1, 100000, 2}, {32, 8, 1, 4, 100000, 2}, {32, 8, 16, 1, 100000, 1},
		{32, 8, 256, 1, 512, 2}, {32, 8, 1, 4096, 0, 1},
	} {
		const dim = 128
		slotPages := (c.at+c.rows)/kernels.PageTokens + 1
		spec := kernels.CacheSpec{Slots: c.n, Pages: c.n * slotPages, SlotPages: slotPages, MaxDraft: 7}
		for range c.layers {
			spec.Layers = append(spec.Layers, kernels.LayerSpec{Kind: kernels.Attention, KVHeads: c.kv, HeadDim: dim})
		}
		cs, err := r.be.Caches(spec)
		require.NoError(r.t, err)
		for s := range c.n {
			pages := make([]int32, slotPages)
			for i := range pages {
				pages[i] = int32(i*c.n + s)
			}
			r.q.SetPages(cs, s, 0, pages)
		}
		kv := r.be.caches[cs.Layer(0).Caches].kv
		r.fill(kv.ptr, kv.bytes, 1)
		b, rows := r.spans(cs, c.n, c.rows, c.at), c.n*c.rows
		proj, dst := r.random(rows, (c.q+2*c.kv)*dim), r.alloc(kernels.BF16, rows, c.q*dim)
		s := &kernels.AttnSpec{QHeads: c.q, KVHeads: c.kv, HeadDim: dim, Scale: 0.09}
		took := r.each(c.layers, func(q kernels.Queue, i int) { q.Attend(dst, proj, cs.Layer(i), &b, s) })
		bytes := float64(c.n) * float64(c.at+c.rows) * float64(4*c.kv*dim)
		fmt.Printf("attend %3d x %4d rows at %6d, %d heads %8.2f us a layer, keys and values at %.2f TB/s, %.2f of copy\n",
			c.n, c.rows, c.at, c.q, took*1e6, bytes/took/1e12, bytes/took/cp)
		require.NoError(r.t, cs.Close())
		r.be.Free(proj)
		r.be.Free(dst)
	}
}

// TestRatesOfOps prints what operations other than products take, with EXACTA_RATES set;
// "rows", "delta" and "attend" are those alone.
func TestRatesOfOps(t *testing.T) {
	r, what := newRates(t), os.Getenv("EXACTA_RATES")
	cp, err := r.be.CopyRate()
	require.NoError(t, err)
	fmt.Printf("copy %.2f TB/s (read and written)\n", cp/1e12)
	if what != "delta" && what != "attend" {
		r.rowOps()
	}
	if what != "rows" && what != "attend" {
		r.deltas()
	}
	if what != "rows" && what != "delta" {
		r.attention(cp)
	}
}
