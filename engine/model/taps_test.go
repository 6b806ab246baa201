package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// A tap after the last layer, normed, is the final hidden state; one after no
// layer is the embedding; the others differ from both and from each other, and
// asking for taps changes nothing else.
func TestTaps(t *testing.T) {
	be := ref.New()
	c := hybrid(32, 48, 4, 2, 1, 16, checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 8, VDim: 8, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 64, 1e4)
	m, err := Load(be, Random{ShapeName: "taps", Shape: c, Seed: 3}, Options{MaxTokens: 64})
	require.NoError(t, err)
	caches, err := be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: 1, Pages: 2, SlotPages: 2, MaxDraft: 8})
	require.NoError(t, err)
	q := be.Queue()
	run := func(taps ...[]int) (out Output, hidden []byte) {
		require.NoError(t, m.Reserve(5, 5, taps...))
		b, err := kernels.NewBatch(be, 1, 5, 5)
		require.NoError(t, err)
		first, err := be.Alloc(kernels.Tables, kernels.I32, 1, 1)
		require.NoError(t, err)
		rest, err := be.Alloc(kernels.Tables, kernels.I32, 1, 4)
		require.NoError(t, err)
		q.Reset(caches, 0)
		q.SetPages(caches, 0, 0, []int32{0, 1})
		q.Write(b.Seq, make([]byte, 4))
		q.Write(first, []byte{7, 0, 0, 0})
		q.Write(rest, []byte{9, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 60, 0, 0, 0})
		b.MaxLen = 5
		q.Chain(&b, caches, 0, first, rest)
		out = m.Forward(q, &b, caches)
		return out, read(t, q, out.Hidden)
	}
	plain, want := run()
	require.Empty(t, plain.Taps)
	out, hidden := run([]int{4, 0}, []int{2})
	require.Equal(t, want, hidden)
	require.Len(t, out.Taps, 2)
	h := c.HiddenSize
	last, first, mid := out.Taps[0].Columns(0, h), out.Taps[0].Columns(h, 2*h), out.Taps[1]
	normed, err := be.Alloc(kernels.Activations, kernels.BF16, 5, h)
	require.NoError(t, err)
	q.Norm(normed, last, m.norm)
	require.Equal(t, want, read(t, q, normed))
	embedded := read(t, q, first)
	require.Equal(t, embedded[2*h:4*h], embedded[6*h:8*h], "the same token in rows 1 and 3")
	require.NotEqual(t, read(t, q, mid), embedded)
	require.NotEqual(t, read(t, q, mid), read(t, q, last))

	require.ErrorContains(t, m.Reserve(5, 5, []int{5}), "random:taps: tap 0 is after layer 5; the model has 4 layers")
}

func read(t *testing.T, q kernels.Queue, b kernels.Buf) []byte {
	t.Helper()
	out := make([]byte, b.Bytes())
	require.NoError(t, q.Read(out, b).Wait())
	return out
}
