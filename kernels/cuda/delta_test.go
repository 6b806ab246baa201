//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// TestDeltaInPasses has room for few rows at a time between the kernels of Gated
// DeltaNet, and expects the bits of a single pass.
func TestDeltaInPasses(t *testing.T) {
	be := device(t)
	r := &rates{t: t, be: be, q: be.q}
	l := kernels.LayerSpec{Kind: kernels.Delta, KHeads: 2, VHeads: 4, KDim: 64, VDim: 48, Conv: 4}
	s := &kernels.DeltaSpec{
		KHeads: l.KHeads, VHeads: l.VHeads, KDim: l.KDim, VDim: l.VDim, Conv: l.Conv, Gate: kernels.SiLU,
		Taps: r.load(kernels.Taps, channels(l), l.Conv, -1, 1), ALog: r.load(kernels.Vector, 1, l.VHeads, -2, 1),
		DtBias: r.load(kernels.Vector, 1, l.VHeads, -1, 1), Norm: kernels.Norm{W: r.load(kernels.Vector, 1, l.VDim, 0, 1), Eps: 1e-6},
	}
	whole := r.q.room.size
	run := func(rows int) (out []byte) {
		cs, err := be.Caches(kernels.CacheSpec{Slots: 2, MaxDraft: 7, Layers: []kernels.LayerSpec{l}})
		require.NoError(t, err)
		if r.q.room.size = whole; rows > 0 {
			r.q.room.size = int64(rows * 4 * (channels(l) + l.VHeads))
		}
		at := 70
		for _, n := range []int{150, 8, 200} {
			b := r.spans(cs, 2, n, at)
			proj, dst := r.random(2*n, channels(l)+l.VHeads*l.VDim+2*l.VHeads), r.alloc(kernels.BF16, 2*n, l.VHeads*l.VDim)
			r.q.Delta(dst, proj, cs.Layer(0), &b, s)
			raw := make([]byte, dst.Bytes())
			require.NoError(t, r.q.Read(raw, dst).Wait())
			out = append(out, raw...)
			at += n
		}
		r.q.room.size = whole
		require.NoError(t, cs.Close())
		return out
	}
	want := run(0)
	for _, rows := range []int{1, 7, 64, 100} {
		require.Equal(t, want, run(rows), "%d rows at a time", rows)
	}
}
