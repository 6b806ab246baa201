//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// benchShapes are products of Qwen3-0.6B and 8B, Qwen3.6-35B-A3B and the 27B.
var benchShapes = []struct {
	name   string
	n, k   int
	paired bool
}{
	{"q06/qkv", 4096, 1024, false}, {"q06/o", 1024, 2048, false}, {"q06/gate_up", 3072, 1024, true}, {"q06/down", 1024, 3072, false},
	{"q06/lm_head", 151936, 1024, false},
	{"q8/qkv", 6144, 4096, false}, {"q8/o", 4096, 4096, false}, {"q8/gate_up", 12288, 4096, true}, {"q8/down", 4096, 12288, false},
	{"q8/lm_head", 151936, 4096, false},
	{"m35/attn_qkvg", 9216, 2048, false}, {"m35/attn_o", 2048, 4096, false}, {"m35/gdn_qkvz", 12288, 2048, false},
	{"m35/gdn_ba", 64, 2048, false}, {"m35/router", 256, 2048, false}, {"m35/lm_head", 248320, 2048, false},
	{"d27/attn_qkvg", 14336, 5120, false}, {"d27/attn_o", 5120, 6144, false}, {"d27/gdn_qkvz", 16384, 5120, false},
	{"d27/gdn_ba", 96, 5120, false}, {"d27/gate_up", 17408, 5120, true}, {"d27/down", 5120, 17408, false}, {"d27/lm_head", 248320, 5120, false},
}

// rates measures products on a device.
type rates struct {
	t    testing.TB
	be   *Backend
	q    *queue
	pool block // random weights
}

const poolBytes = 3 << 30

func newRates(t testing.TB) *rates {
	if os.Getenv("EXACTA_RATES") == "" {
		t.Skip("EXACTA_RATES is not set")
	}
	be := device(t)
	r := &rates{t: t, be: be, q: be.q}
	var err error
	r.pool, err = be.zeroed(kernels.Weights, poolBytes, 0)
	require.NoError(t, err)
	r.fill(r.pool.ptr, poolBytes, 0.02)
	return r
}

// fill puts random BF16 numbers, some millions of them over and over.
func (r *rates) fill(p driver.Ptr, n int64, scale float64) {
	const piece = 8 << 20
	rnd := rand.New(rand.NewPCG(1, 2))
	require.NoError(r.t, r.q.upload(p, min(piece, n), func(dst []byte) error {
		for i := 0; i+1 < len(dst); i += 2 {
			binary.LittleEndian.PutUint16(dst[i:], bf16(float32(rnd.NormFloat64()*scale)))
		}
		return nil
	}))
	require.NoError(r.t, r.be.enter())
	defer r.be.leave()
	for at := int64(piece); at < n; at += piece {
		m := min(piece, n-at)
		require.NoError(r.t, r.q.stream.Copy2D(p+driver.Ptr(at), m, p, m, m, 1))
	}
	require.NoError(r.t, r.q.stream.Synchronize())
}

func (r *rates) alloc(k kernels.Kind, rows, cols int) kernels.Buf {
	b, err := r.be.Alloc(kernels.Activations, k, rows, cols)
	require.NoError(r.t, err)
	return b
}

// weight is a handle on part i of the pool.
func (r *rates) weight(w *weight, i int) kernels.Weight {
	w.bytes = int64(w.rows) * int64(w.cols) * 2
	w.ptr = r.pool.at(int64(i) * w.bytes)
	id := handles.Add(1)
	r.be.weights[id] = w
	return kernels.Weight{ID: id}
}

// copies is how many weights of a size a round goes through: more than the L2 cache
// holds.
func copies(bytes int64) int { return int(max(1, min((400<<20)/bytes, 64, poolBytes/bytes))) }

// time returns the seconds of one run of body, which is captured; the best of rounds.
func (r *rates) time(body func(q kernels.Queue)) float64 {
	p, err := r.q.Capture(kernels.GraphKey{Name: "bench"}, body)
	require.NoError(r.t, err)
	r.q.Run(p)
	require.NoError(r.t, r.q.Err())
	best, reps := 1.0, 1
	for range 6 {
		begin := time.Now()
		for range reps {
			r.q.Run(p)
		}
		require.NoError(r.t, r.q.Err())
		took := time.Since(begin).Seconds()
		best = min(best, took/float64(reps))
		reps = max(1, min(50, int(2e-3/best)))
	}
	require.NoError(r.t, r.q.programs[p.ID].graph.Close())
	delete(r.q.programs, p.ID)
	return best
}

// readRate is what a kernel that only reads gets, in bytes a second.
func (r *rates) readRate() float64 {
	const n = 2 << 30
	took := r.time(func(kernels.Queue) {
		r.q.do(opRead, func() {
			*args[readArgs](r.q) = readArgs{env: r.q.head(), p: r.pool.ptr, n: n / 16, sink: r.q.room.values}
			r.q.launch(kBenchRead, 8*r.be.dev.Multiprocessors, 1, 0)
		})
	})
	return n / took
}

// product times a product of rows, in a round over copies of the weight.
func (r *rates) product(n, k int, paired bool, rows int) float64 {
	all := n
	act := kernels.Identity
	if paired {
		all, act = 2*n, kernels.SwiGLU
	}
	c := copies(int64(all) * int64(k) * 2)
	x, dst := r.alloc(kernels.BF16, rows, k), r.alloc(kernels.BF16, rows, n)
	defer r.be.Free(x)
	defer r.be.Free(dst)
	r.fill(r.be.bufs[x.ID].ptr, int64(rows*k*2), 1)
	var ws []kernels.Weight
	for i := range c {
		ws = append(ws, r.weight(&weight{name: "w", use: kernels.Matrix, rows: all, cols: k, paired: paired}, i))
	}
	times := max(c, 16)
	if rows > 1024 {
		times = c
	}
	return r.time(func(q kernels.Queue) {
		for i := range times {
			q.MatMul(dst, ws[i%c], x, kernels.Linear{Act: act})
		}
	}) / float64(times)
}

// TestRates prints what products take, for shapes of models, with EXACTA_RATES set; of
// "cuts" it also says which cut of few rows is the best.
func TestRates(t *testing.T) {
	r, what := newRates(t), os.Getenv("EXACTA_RATES")
	read := r.readRate()
	cp, err := r.be.CopyRate()
	require.NoError(t, err)
	fmt.Printf("read loop %.2f TB/s, copy %.2f TB/s (read and written)\n", read/1e12, cp/1e12)
	for _, s := range benchShapes {
		bytes := float64(s.n*s.k) * 2
		if s.paired {
			bytes *= 2
		}
		for _, rows := range []int{1, 4, 8, 16, 32, 64, 128, 256, 4096} {
			if rows == 4096 && s.n > 100000 && s.k > 1024 {
				continue
			}
			took := r.product(s.n, s.k, s.paired, rows)
			p := hopperShape{rows: rows, n: s.n, k: s.k, paired: s.paired, blocks: 1, sms: 132, sharedPerBlock: 227 << 10}.plan()
			fmt.Printf("%-14s M=%-4d %8.2f us %5.2f TB/s %5.1f%% of copy, %5.1f TFLOP/s", s.name, rows, took*1e6, bytes/took/1e12, 100*bytes/took/cp, bytes*float64(rows)/took/1e12)
			fmt.Printf("  %s of %d, %d stages, split %t", hopperKernels[p.kernel].name, p.grid, p.stages, p.split)
			if what == "cuts" && s.n < 100000 {
				r.bestCut(s.n, s.k, s.paired, rows)
			}
			fmt.Println()
		}
	}
	r.mixtures(cp)
	fmt.Printf("read loop %.2f TB/s at the end\n", r.readRate()/1e12)
}

// bestCut prints the fastest cuts.
func (r *rates) bestCut(n, k0 int, paired bool, rows int) {
	defer func() { r.q.tune = nil }()
	best, name := 1.0, ""
	for kernel, k := range hopperKernels {
		if rows > 1000 && k.width < 128 {
			continue
		}
		can := false
		r.q.tune = func(s hopperShape, planned hopperPlan) hopperPlan {
			c := s.cut(kernel)
			if can = !math.IsInf(c.time, 1); !can {
				return planned
			}
			return c
		}
		if took := r.product(n, k0, paired, rows); can && took < best {
			best, name = took, k.name
		}
	}
	fmt.Printf("  best %s %.2f us", name, best*1e6)
}

// mixtures times the experts of Qwen3.6-35B-A3B, routed at random.
func (r *rates) mixtures(cp float64) {
	const experts, each, h, inter = 256, 8, 2048, 512
	rnd := rand.New(rand.NewPCG(3, 4))
	up := r.weight(&weight{name: "up", use: kernels.Bank, rows: experts * 2 * inter, cols: h, paired: true, experts: experts}, 0)
	down := r.weight(&weight{name: "down", use: kernels.Bank, rows: experts * h, cols: inter, experts: experts}, 2)
	for _, rows := range []int{1, 4, 8, 32, 64, 256, 1024, 4096} {
		const tables = 12
		var ids []kernels.Buf
		distinct := 0
		for range tables {
			b := r.alloc(kernels.I32, rows, each)
			raw, seen := []byte{}, map[int]bool{}
			for range rows {
				for _, e := range rnd.Perm(experts)[:each] {
					raw = binary.LittleEndian.AppendUint32(raw, uint32(e))
					seen[e] = true
				}
			}
			distinct += len(seen)
			r.q.Write(b, raw)
			ids = append(ids, b)
		}
		x, hid, dst := r.alloc(kernels.BF16, rows, h), r.alloc(kernels.BF16, rows*each, inter), r.alloc(kernels.BF16, rows, h)
		w := r.alloc(kernels.F32, rows, each)
		r.fill(r.be.bufs[x.ID].ptr, int64(rows*h*2), 1)
		r.fill(r.be.bufs[hid.ID].ptr, int64(rows*each*inter*2), 1)
		upT := r.time(func(q kernels.Queue) {
			for i := range tables {
				q.Experts(hid, up, x, ids[i], kernels.SwiGLU)
			}
		}) / tables
		downT := r.time(func(q kernels.Queue) {
			for i := range tables {
				q.Mix(dst, down, hid, ids[i], w, kernels.Buf{})
			}
		}) / tables
		both := r.time(func(q kernels.Queue) {
			for i := range tables {
				q.Experts(hid, up, x, ids[i], kernels.SwiGLU)
				q.Mix(dst, down, hid, ids[i], w, dst)
			}
		}) / tables
		bytes := float64(distinct) / tables * 3 * h * inter * 2
		floor := bytes / (0.75 * cp)
		fmt.Printf("experts M=%-4d up %8.2f us, down %8.2f us, both %8.2f us: %5.1f experts, bytes at 75%% of copy %8.2f us, ratio %.2f; %.1f TFLOP/s\n",
			rows, upT*1e6, downT*1e6, both*1e6, float64(distinct)/tables, floor*1e6, both/floor, float64(rows*each)*6*h*inter/both/1e12)
		for _, b := range append(ids, x, hid, dst, w) {
			r.be.Free(b)
		}
	}
}
