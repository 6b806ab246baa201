package model

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
)

// BenchmarkDraftStep compares a draft step (module and LM head, one row, behind 64
// keys) of an MTP head of 4 bits with one of BF16, interleaved, at a hidden size of
// 4096; both LM heads know the whole vocabulary.
func BenchmarkDraftStep(b *testing.B) {
	c := hybrid(4096, 12288, 4, 32, 8, 128, checkpoint.GDN{NumKHeads: 1, NumVHeads: 1, KDim: 32, VDim: 32, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 32768, 1e6)
	c.NumLayers, c.LayerTypes, c.MaxPositions = 1, c.LayerTypes[:1], 256
	be, err := cpu.New(cpu.Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, be.Close()) }()
	m, err := Load(be, Random{ShapeName: "4096", Shape: c, Seed: 1}, Options{MTP: true})
	require.NoError(b, err)
	config := `{"architectures": ["MTPDraftModel"], "hidden_size": 4096, "vocab_size": 32768}`
	all := int4Tensors(b, c, c.VocabSize)
	delete(all, "d2t")
	var heads [2]*MTP
	for i, where := range []string{"", writeHead(b, config, all)} {
		h, err := m.LoadMTP(where)
		require.NoError(b, err)
		heads[i], err = h.New(1, 1)
		require.NoError(b, err)
	}
	layer, _ := m.MTPLayer()
	caches, err := be.Caches(kernels.CacheSpec{Layers: []kernels.LayerSpec{layer, layer}, Slots: 1, Pages: 4, SlotPages: 4, MaxDraft: 4})
	require.NoError(b, err)
	batch, err := kernels.NewBatch(be, 1, 1, 1)
	require.NoError(b, err)
	hidden, err := be.Alloc(kernels.Activations, kernels.BF16, 1, c.HiddenSize)
	require.NoError(b, err)
	q := be.Queue()
	q.SetPages(caches, 0, 0, []int32{0, 1})
	batch.MaxLen = 1
	for _, t := range []struct {
		dst kernels.Buf
		v   uint32
	}{{batch.Seq, 0}, {batch.Start, 64}, {batch.Len, 1}, {batch.RowOff, 0}, {batch.Token, 7}, {batch.Pos, 64}, {batch.Parent, ^uint32(0)}, {batch.Span, 0}, {batch.Logit, 0}} {
		q.Write(t.dst, binary.LittleEndian.AppendUint32(nil, t.v))
	}
	var times [2][]float64
	for b.Loop() {
		for i, h := range heads {
			start := time.Now()
			h.Logits(q, h.Forward(q, &batch, caches.Layer(i), hidden))
			require.NoError(b, q.Err())
			times[i] = append(times[i], time.Since(start).Seconds())
		}
	}
	for i := range times {
		slices.Sort(times[i])
	}
	n := len(times[0]) / 2
	b.ReportMetric(1e3*times[0][n], "bf16-ms")
	b.ReportMetric(1e3*times[1][n], "int4-ms")
	b.ReportMetric(times[1][n]/times[0][n], "ratio")
}
