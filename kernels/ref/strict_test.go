package ref

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// hybrid is a rig with caches of an attention and a recurrent layer.
type hybrid struct {
	*rig
	cs   kernels.Caches
	attn *kernels.AttnSpec
	net  *kernels.DeltaSpec
}

func newHybrid(t *testing.T) *hybrid {
	h := &hybrid{rig: newRig(t)}
	var err error
	h.cs, err = h.be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{
			{Kind: kernels.Attention, KVHeads: 1, HeadDim: 4},
			{Kind: kernels.Delta, KHeads: 1, VHeads: 1, KDim: 2, VDim: 2, Conv: 2},
		},
		Slots: 2, Pages: 2, SlotPages: 2, MaxDraft: 3, Snapshots: 2,
	})
	require.NoError(t, err)
	h.attn = &kernels.AttnSpec{QHeads: 1, KVHeads: 1, HeadDim: 4, Scale: 1}
	h.net = &kernels.DeltaSpec{
		KHeads: 1, VHeads: 1, KDim: 2, VDim: 2, Conv: 2, Gate: kernels.SiLU,
		Taps: h.load(kernels.Taps, 6, 2, h.random(12)), ALog: h.load(kernels.Vector, 1, 1, h.random(1)),
		DtBias: h.load(kernels.Vector, 1, 1, h.random(1)),
	}
	return h
}

func (h *hybrid) attend(b *kernels.Batch) {
	h.q.Attend(h.floats(kernels.BF16, b.Rows, 4, nil), h.floats(kernels.BF16, b.Rows, 12, h.random(12*b.Rows)), h.cs.Layer(0), b, h.attn)
}

func (h *hybrid) delta(b *kernels.Batch) {
	h.q.Delta(h.floats(kernels.BF16, b.Rows, 2, nil), h.floats(kernels.BF16, b.Rows, 10, h.random(10*b.Rows)), h.cs.Layer(1), b, h.net)
}

func (h *hybrid) commit(b *kernels.Batch, kept int32) {
	k, err := h.be.Alloc(kernels.Tables, kernels.I32, 1, 1)
	require.NoError(h.t, err)
	h.set(k, kept)
	h.q.Commit(h.cs, b, k, kernels.Buf{})
}

// TestStrict lists what a caller may not do and other backends need not notice.
func TestStrict(t *testing.T) {
	for want, f := range map[string]func(h *hybrid){
		"attend: span 0: slot 0: no page is set for position 0":     func(h *hybrid) { h.attend(h.chain(0, 2)) },
		"attend: span 0: slot 0: position 128 is beyond its 2":      func(h *hybrid) { h.q.SetPages(h.cs, 0, 0, []int32{1, 0}); h.attend(h.chain(127, 2)) },
		"delta: span 0: slot 0: the span starts at 3":               func(h *hybrid) { h.delta(h.chain(3, 1)) },
		"delta: span 0: slot 0: the layer did not run over tokens":  func(h *hybrid) { h.commit(h.chain(0, 2), 1); h.delta(h.chain(1, 2)) },
		"commit: span 0: layer 1 did not run over slot 0, rows 0+2": func(h *hybrid) { h.delta(h.chain(0, 3)); h.commit(h.chain(0, 2), 1) },
		"commit: span 0: 3 rows kept of 2":                          func(h *hybrid) { h.commit(h.chain(0, 2), 3) },
		"commit: span 0: 4 rows kept of 5":                          func(h *hybrid) { h.delta(h.chain(0, 5)); h.commit(h.chain(0, 5), 4) },
		"save: slot 0 has length 1":                                 func(h *hybrid) { h.delta(h.chain(0, 1)); h.commit(h.chain(0, 1), 1); h.q.Save(h.cs, 0, 0) },
		"restore: snapshot 1 was saved at length -1":                func(h *hybrid) { h.q.Restore(h.cs, 0, 1, 64) },
		"restore: snapshot 0 was saved at length 0, not 64":         func(h *hybrid) { h.q.Save(h.cs, 0, 0); h.q.Restore(h.cs, 1, 0, 64) },
		"set pages: page 2 of 2":                                    func(h *hybrid) { h.q.SetPages(h.cs, 0, 0, []int32{2}) },
		"span 0: row 1: position 7; start and depth give 1":         func(h *hybrid) { b := h.chain(0, 2); h.set(b.Pos, 0, 7); h.delta(b) },
		"span 0: row 1: parent 1":                                   func(h *hybrid) { b := h.chain(0, 2); h.set(b.Parent, -1, 1); h.delta(b) },
		"row 1 belongs to span 0, its Span is -1":                   func(h *hybrid) { b := h.chain(0, 2); h.set(b.Span, 0, -1); h.delta(b) },
		"span 0: slot 5 of 2":                                       func(h *hybrid) { b := h.chain(0, 2); h.set(b.Seq, 5); h.delta(b) },
		"span 0: length 9 of a bucket with at most 2":               func(h *hybrid) { b := h.chain(0, 2); h.set(b.Len, 9); h.delta(b) },
		"row 2 is kept at depth 2 of 3": func(h *hybrid) {
			b := h.chain(0, 3)
			h.set(b.Parent, -1, 0, 0)
			h.set(b.Pos, 0, 1, 1)
			h.delta(b)
			h.commit(b, 3)
		},
		"embed: row 0: id 3 of a table of 3 rows": func(h *hybrid) {
			b := h.chain(0, 1)
			h.set(b.Token, 3)
			h.q.Embed(h.floats(kernels.BF16, 1, 4, nil), h.load(kernels.Matrix, 3, 4, h.random(12)), b.Token)
		},
		"matmul: activation 3 on weight w": func(h *hybrid) {
			h.q.MatMul(h.floats(kernels.BF16, 1, 2, nil), h.load(kernels.Matrix, 4, 4, h.random(16)), h.floats(kernels.BF16, 1, 4, nil), kernels.Linear{Act: kernels.SwiGLU})
		},
	} {
		h := newHybrid(t)
		f(h)
		require.ErrorContains(t, h.q.Err(), want)
	}
}

// TestSlotsOnce refuses two spans of one slot.
func TestSlotsOnce(t *testing.T) {
	h := newHybrid(t)
	b, err := kernels.NewBatch(h.be, 2, 2, 2)
	require.NoError(t, err)
	h.set(b.Len, 1, 1)
	h.set(b.RowOff, 0, 1)
	h.set(b.Parent, -1, -1)
	h.set(b.Span, 0, 1)
	h.delta(&b)
	require.ErrorContains(t, h.q.Err(), "span 1: slot 0 is in another span too")
}

func TestForeignHandles(t *testing.T) {
	a, b := newRig(t), newRig(t)
	x := a.floats(kernels.F32, 1, 1, nil)
	b.q.Copy(b.floats(kernels.F32, 1, 1, nil), x)
	require.ErrorContains(t, b.q.Err(), "copy: src is not a live buffer of this backend")
}
