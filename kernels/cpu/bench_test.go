package cpu

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// noise is a source of BF16 weights of small random size, any length.
type noise struct{}

func (noise) ReadAt(p []byte, off int64) (int, error) {
	x := uint64(off)*0x9e3779b97f4a7c15 + 1
	for i := 0; i+1 < len(p); i += 2 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		p[i] = byte(x)
		p[i+1] = byte(x>>8)&0x80 | byte(0x3c+x>>16&1)
	}
	return len(p), nil
}

// shape is a decoder for measurements of speed.
type shape struct {
	name                  string
	layers, hidden, inter int
	heads, kv, dim, rot   int
	gated                 bool
	kh, vh, kd, vd        int // Gated DeltaNet; every fourth layer is attention
	vocab                 int
}

var (
	tinyShape  = shape{"embedded", 20, 192, 448, 4, 2, 64, 16, true, 2, 4, 64, 64, 4096}
	smallShape = shape{"qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 128, false, 0, 0, 0, 0, 151936}
)

type benchLayer struct {
	in, out, gateUp, down kernels.Weight
	attn                  *kernels.AttnSpec
	delta                 *kernels.DeltaSpec
	cols, mixed           int
}

// bench is a whole decoder with random weights.
type bench struct {
	*rig
	s                           shape
	layers                      []benchLayer
	embed                       kernels.Weight
	norm                        kernels.Norm
	c                           kernels.Caches
	b                           kernels.Batch
	x, proj, mixed, mlp, logits kernels.Buf
	stats, kept                 kernels.Buf
}

func (b *bench) weight(rows, cols int) kernels.Weight {
	return b.load(kernels.Matrix, false, kernels.Source{Name: "w", Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: noise{}})
}

func newBench(t testing.TB, s shape, threads, rows int) *bench {
	b := &bench{rig: newRig(t, threads, ""), s: s}
	w, _ := b.vector(1, s.hidden, 0.1)
	b.norm = kernels.Norm{W: w, Eps: 1e-6, Centered: true}
	b.embed = b.weight(s.vocab, s.hidden)
	qn, _ := b.vector(2, s.dim, 0.1)
	n := kernels.Norm{W: qn, Eps: 1e-6, Centered: true}
	attn := &kernels.AttnSpec{QHeads: s.heads, KVHeads: s.kv, HeadDim: s.dim, Scale: 0.1, Gated: s.gated, QNorm: n, KNorm: n, Rotary: s.rot}
	attn.Rope = b.load(kernels.Table, false, part("rope", 1024, s.rot, random(3, 1024*s.rot, 0.5)))
	spec := kernels.CacheSpec{Slots: 1, Pages: 16, SlotPages: 16, MaxDraft: 15}
	proj, mixed := 0, 0
	for i := range s.layers {
		var l benchLayer
		if s.kh > 0 && i%4 != 3 {
			l.mixed = s.vh * s.vd
			ch := 2*s.kh*s.kd + l.mixed
			l.cols = ch + l.mixed + 2*s.vh
			a, _ := b.vector(4, s.vh, 0.3)
			nw, _ := b.vector(5, s.vd, 1)
			l.delta = &kernels.DeltaSpec{KHeads: s.kh, VHeads: s.vh, KDim: s.kd, VDim: s.vd, Conv: 4, ALog: a, DtBias: a, Gate: kernels.SiLU,
				Taps: b.load(kernels.Taps, false, part("taps", ch, 4, random(6, ch*4, 0.5))), Norm: kernels.Norm{W: nw, Eps: 1e-6}}
			spec.Layers = append(spec.Layers, kernels.LayerSpec{Kind: kernels.Delta, KHeads: s.kh, VHeads: s.vh, KDim: s.kd, VDim: s.vd, Conv: 4})
		} else {
			l.mixed = s.heads * s.dim
			l.cols = l.mixed + 2*s.kv*s.dim
			if s.gated {
				l.cols += l.mixed
			}
			l.attn = attn
			spec.Layers = append(spec.Layers, kernels.LayerSpec{Kind: kernels.Attention, KVHeads: s.kv, HeadDim: s.dim})
		}
		l.in, l.out, l.down = b.weight(l.cols, s.hidden), b.weight(s.hidden, l.mixed), b.weight(s.hidden, s.inter)
		src := kernels.Source{Name: "w", Rows: s.inter, Cols: s.hidden, DType: kernels.DTypeBF16, Data: noise{}}
		l.gateUp = b.load(kernels.Matrix, true, src, src)
		proj, mixed = max(proj, l.cols), max(mixed, l.mixed)
		b.layers = append(b.layers, l)
	}
	var err error
	b.c, err = b.rig.b.Caches(spec)
	require.NoError(t, err)
	b.q.Reset(b.c, 0)
	b.q.SetPages(b.c, 0, 0, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	b.b = b.batch(1, rows, rows)
	b.x, b.proj = b.alloc(kernels.BF16, rows, s.hidden), b.alloc(kernels.BF16, rows, proj)
	b.mixed, b.mlp = b.alloc(kernels.BF16, rows, mixed), b.alloc(kernels.BF16, rows, s.inter)
	logits := min(rows, 16)
	b.logits, b.stats = b.alloc(kernels.F32, logits, s.vocab), b.alloc(kernels.I32, logits, kernels.StatCols)
	b.kept = b.putI32(0)
	return b
}

// forward records a pass over a batch; logits are taken of at most 16 rows.
func (b *bench) forward(q kernels.Queue, t *kernels.Batch) {
	n := t.Rows
	x, mlp := b.x.Top(n), b.mlp.Top(n)
	q.Embed(x, b.embed, t.Token)
	for i := range b.layers {
		l := &b.layers[i]
		proj, mixed := b.proj.Top(n).Columns(0, l.cols), b.mixed.Top(n).Columns(0, l.mixed)
		q.MatMul(proj, l.in, x, kernels.Linear{In: b.norm})
		if l.attn != nil {
			q.Attend(mixed, proj, b.c.Layer(i), t, l.attn)
		} else {
			q.Delta(mixed, proj, b.c.Layer(i), t, l.delta)
		}
		q.MatMul(x, l.out, mixed, kernels.Linear{Residual: x})
		q.MatMul(mlp, l.gateUp, x, kernels.Linear{In: b.norm, Act: kernels.SwiGLU})
		q.MatMul(x, l.down, mlp, kernels.Linear{Residual: x})
	}
	k := min(n, 16)
	if n > 16 {
		k = 1
	}
	q.MatMul(b.logits.Top(k), b.embed, x.Top(k), kernels.Linear{In: b.norm})
	q.Stats(b.stats.Top(k), b.logits.Top(k), b.s.vocab, true)
	q.Commit(b.c, t, b.kept, kernels.Buf{})
}

// program captures a pass of n rows at position start that commits nothing.
func (b *bench) program(start, n int) kernels.Program {
	full := b.batch(1, n, n)
	t := b.lay(full, piece{0, start, n})
	b.q.Write(b.kept, rawI32([]int32{0}))
	p, err := b.q.Capture(kernels.GraphKey{}, func(q kernels.Queue) { b.forward(q, &t) })
	require.NoError(b.t, err)
	return p
}

func (b *bench) run(p kernels.Program) {
	b.q.Run(p)
	require.NoError(b.t, b.q.Err())
}

// timed returns the wall time of f as a function.
func timed(f func()) func() time.Duration {
	return func() time.Duration {
		t := time.Now()
		f()
		return time.Since(t)
	}
}

// best interleaves the functions and returns the shortest time of each.
func best(rounds int, fs ...func() time.Duration) []time.Duration {
	out := make([]time.Duration, len(fs))
	for range rounds {
		for i, f := range fs {
			if d := f(); out[i] == 0 || d < out[i] {
				out[i] = d
			}
		}
	}
	return out
}

func (b *bench) prefix(n int) {
	full := b.batch(1, n, n)
	t := b.lay(full, piece{0, 0, n})
	b.q.Write(b.kept, rawI32([]int32{int32(n)}))
	b.forward(b.q, &t)
	require.NoError(b.t, b.q.Err())
}

// BenchmarkRows prints the cost of passes of several rows against a plain read
// loop over the same memory, all in one interleaved run.
func BenchmarkRows(b *testing.B) {
	shapes := []shape{tinyShape}
	if os.Getenv("EXACTA_SOAK") != "" {
		shapes = append(shapes, smallShape)
	}
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			m := newBench(b, s, 0, 128)
			m.prefix(100)
			rows := []int{1, 2, 4, 6, 8, 12}
			fs := []func() time.Duration{func() time.Duration {
				_, took := m.rig.b.ReadWeights(1)
				return took
			}}
			for _, n := range rows {
				p := m.program(100, n)
				fs = append(fs, timed(func() { m.run(p) }))
			}
			var d []time.Duration
			for b.Loop() {
				d = best(40, fs...)
			}
			b.ReportMetric(d[0].Seconds()*1e6, "read-us")
			b.ReportMetric(d[1].Seconds()*1e6, "row-us")
			b.ReportMetric(d[0].Seconds()/d[1].Seconds(), "of-read")
			for i, n := range rows[1:] {
				b.ReportMetric(d[i+2].Seconds()/d[1].Seconds(), fmt.Sprintf("x%d", n))
			}
		})
	}
}

// BenchmarkPrefill compares matrix products of many rows with the arithmetic
// peak.
func BenchmarkPrefill(b *testing.B) {
	for _, c := range []struct{ rows, n, k int }{{512, 3072, 1024}, {512, 1024, 3072}, {512, 448, 192}, {64, 3072, 1024}, {8, 3072, 1024}} {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			r := newRig(b, 0, "")
			w := r.load(kernels.Matrix, false, kernels.Source{Name: "w", Rows: c.n, Cols: c.k, DType: kernels.DTypeBF16, Data: noise{}})
			x, y := r.put16(c.rows, c.k, random(1, c.rows*c.k, 1)), r.alloc(kernels.BF16, c.rows, c.n)
			var macs int64
			var d []time.Duration
			for b.Loop() {
				d = best(5, func() (took time.Duration) {
					macs, took = r.b.PeakMACs(300000)
					return took
				}, timed(func() {
					for range 4 {
						r.q.MatMul(y, w, x, kernels.Linear{})
					}
					require.NoError(b, r.q.Err())
				}))
			}
			peak := float64(macs) / d[0].Seconds()
			rate := 4 * float64(c.rows*c.n*c.k) / d[1].Seconds()
			b.ReportMetric(peak/1e9, "peak-GMAC/s")
			b.ReportMetric(rate/1e9, "GMAC/s")
			b.ReportMetric(rate/peak, "of-peak")
		})
	}
}

// BenchmarkBarrier is the cost of one barrier of all workers.
func BenchmarkBarrier(b *testing.B) {
	for _, n := range []int{1, 2, 3} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b, n, "")
			const ops = 1000
			p, err := r.q.Capture(kernels.GraphKey{}, func(q kernels.Queue) {
				for range ops {
					q.Reset(nilCaches(r), 0)
				}
			})
			require.NoError(b, err)
			for b.Loop() {
				r.q.Run(p)
				require.NoError(b, r.q.Err())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/ops, "ns/barrier")
		})
	}
}

// nilCaches returns caches without recurrent layers: Reset is then a barrier.
func nilCaches(r *rig) kernels.Caches {
	if r.b.caches == nil {
		_, err := r.b.Caches(kernels.CacheSpec{Slots: 1, SlotPages: 1})
		require.NoError(r.t, err)
	}
	return r.b.caches[0]
}
