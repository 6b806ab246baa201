package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// A defect in an operation becomes an error, on whatever worker it happens, and
// the workers are there for the next list.
func TestPanicBecomesAnError(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		for bad := range threads {
			r := newRig(t, threads, "")
			call := func(f func(*worker)) error {
				return r.b.pool.run(&list{refs: []ref{{kind: opCall}, {kind: opCall, i: 1}}, calls: []func(*worker){f, func(*worker) {}}})
			}
			require.ErrorContains(t, call(func(w *worker) {
				if w.id == bad {
					panic("defect")
				}
			}), "cpu: operation 1: defect")
			for range 3 {
				require.NoError(t, call(func(*worker) {}))
			}
		}
	}
}

// Everybody leaves a list at the same barrier when one worker finds an error.
func TestErrorOfOneWorker(t *testing.T) {
	r := newRig(t, 3, "")
	ran := make([]int, 3)
	err := r.b.pool.run(&list{
		refs: []ref{{kind: opCall}, {kind: opCall, i: 1}, {kind: opCall, i: 1}},
		calls: []func(*worker){func(w *worker) {
			if w.id == 1 {
				w.fail("broken")
			}
		}, func(w *worker) { ran[w.id]++ }},
	})
	require.EqualError(t, err, "broken")
	require.Equal(t, []int{0, 0, 0}, ran)
}

func TestMeasurements(t *testing.T) {
	m := newModel(t, 2, 1)
	bytes, took := m.rig.b.ReadWeights(2)
	require.Equal(t, 2*m.rig.b.Memory()[kernels.Weights], bytes)
	require.Positive(t, took)
	macs, took := m.rig.b.PeakMACs(1000)
	require.Positive(t, macs)
	require.Positive(t, took)
	require.NoError(t, m.q.Err())
}

func TestStatsOfNaN(t *testing.T) {
	nan := float32(math.NaN())
	r := newRig(t, 2, "")
	x := make([]float32, 3*2000)
	for i := range x {
		x[i] = nan
	}
	x[2000+1500], x[4000] = -3, float32(math.Inf(-1))
	logits, stats := r.alloc(kernels.F32, 3, 2000), r.alloc(kernels.I32, 3, kernels.StatCols)
	r.q.Write(logits, raw32(x))
	r.q.Stats(stats, logits, 1999, true)
	s := r.getI32(stats)
	for i, want := range [][3]int32{{0, 1, 2000}, {1500, 0, 1999}, {0, 1, 1999}} {
		row := s[i*kernels.StatCols:]
		require.Equal(t, want, [3]int32{row[kernels.StatTop1], row[kernels.StatTop2], row[kernels.StatNaNs]})
		hash := kernels.HashRow(x[i*2000 : (i+1)*2000])
		require.Equal(t, [2]int32{int32(uint32(hash)), int32(uint32(hash >> 32))}, [2]int32{row[kernels.StatHashLo], row[kernels.StatHashHi]})
	}
}

func TestCacheSpecErrors(t *testing.T) {
	r := newRig(t, 1, "")
	attn := kernels.LayerSpec{Kind: kernels.Attention, KVHeads: 1, HeadDim: 16}
	delta := kernels.LayerSpec{Kind: kernels.Delta, KHeads: 2, VHeads: 4, KDim: 8, VDim: 8, Conv: 4}
	for want, change := range map[string]func(*kernels.CacheSpec){
		"layer 0: attention with 1 KV heads of 15": func(s *kernels.CacheSpec) { s.Layers[0].HeadDim = 15 },
		"layer 1: delta with 2 key heads of 8":     func(s *kernels.CacheSpec) { s.Layers[1].VHeads = 3 },
		"layer 1: a convolution of 5 taps":         func(s *kernels.CacheSpec) { s.Layers[1].Conv = 5 },
		"layer 1: unknown kind 0":                  func(s *kernels.CacheSpec) { s.Layers[1].Kind = 0 },
		"0 slots of 2 pages":                       func(s *kernels.CacheSpec) { s.Slots = 0 },
		"0 pages; attention":                       func(s *kernels.CacheSpec) { s.Pages = 0 },
		"max draft 64; want 0 to 63":               func(s *kernels.CacheSpec) { s.MaxDraft = 64 },
		"-1 snapshots":                             func(s *kernels.CacheSpec) { s.Snapshots = -1 },
	} {
		spec := kernels.CacheSpec{Layers: []kernels.LayerSpec{attn, delta}, Slots: 1, Pages: 2, SlotPages: 2, MaxDraft: 3}
		change(&spec)
		before := r.b.Memory()
		_, err := r.b.Caches(spec)
		require.ErrorContains(t, err, want)
		require.Equal(t, before, r.b.Memory())
	}
}
