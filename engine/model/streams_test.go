package model

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/ref"
)

// TestStreamTaps taps the streams of a model one by one: the tap of no stream is their
// mean.
func TestStreamTaps(t *testing.T) {
	text, err := os.ReadFile("testdata/qwen4_exp/config.json")
	require.NoError(t, err)
	c, err := checkpoint.ParseConfig(text)
	require.NoError(t, err)
	be := ref.New()
	defer func() { require.NoError(t, be.Close()) }()
	m, err := Load(be, Random{ShapeName: "taps", Shape: c, Seed: 4}, Options{MaxTokens: 64})
	require.NoError(t, err)
	caches, err := be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: 1, Pages: 2, SlotPages: 2, MaxDraft: 8})
	require.NoError(t, err)
	n, h, q := c.Streams.Count, c.HiddenSize, be.Queue()
	require.NoError(t, m.Reserve(5, 5, append([]int{2}, allStreams(2, n)...), []int{0}))
	q.SetPages(caches, 0, 0, []int32{0, 1})
	b := chainOf(t, m, caches, 0, 7, 9, 3, 9, 60)
	out := m.Forward(q, &b, caches)
	tap := out.Taps[0]
	mean, err := be.Alloc(kernels.Activations, kernels.BF16, 5, h)
	require.NoError(t, err)
	q.Collapse(mean, tap.Columns(h, (n+1)*h), kernels.Buf{}, 1/float32(n))
	require.Equal(t, read(t, q, mean), read(t, q, tap.Columns(0, h)))
	require.NotEqual(t, read(t, q, tap.Columns(h, 2*h)), read(t, q, tap.Columns(2*h, 3*h)), "two streams")
	embedded, err := be.Alloc(kernels.Activations, kernels.BF16, 5, h)
	require.NoError(t, err)
	q.Embed(embedded, m.embed, b.Token)
	require.Equal(t, read(t, q, embedded), read(t, q, out.Taps[1]), "all streams begin as the embedding")

	require.ErrorContains(t, m.Reserve(5, 5, []int{StreamTap(2, n)}), "tap 0 is of residual stream 3; the model has 3")
	require.ErrorContains(t, m.Reserve(5, 5, []int{StreamTap(5, 0)}), "tap 0 is after layer 5; the model has 4 layers")
}

// TestTextOfMultimodal loads the text model of a checkpoint in which it is one part of
// several, and gets the model that stands alone.
func TestTextOfMultimodal(t *testing.T) {
	const dir = "testdata/qwen4_exp"
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	list, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	data := []checkpoint.Data{{Name: "model.visual.patch_embed.proj.weight", DType: checkpoint.BF16, Shape: []int{2, 2}, Bytes: make([]byte, 8)}}
	for _, x := range list {
		name := x.Name
		if rest, ok := strings.CutPrefix(name, "model."); ok {
			name = "model.language_model." + rest
		}
		data = append(data, checkpoint.Data{Name: name, DType: x.DType, Shape: x.Shape, Bytes: x.Bytes()})
	}
	to := t.TempDir()
	var file bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&file, data, nil))
	require.NoError(t, os.WriteFile(filepath.Join(to, "model.safetensors"), file.Bytes(), 0o644))
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	whole, err := json.Marshal(map[string]any{
		"model_type": "qwen4_exp", "architectures": []string{"Qwen4ExpForConditionalGeneration"},
		"text_config": json.RawMessage(text), "vision_config": map[string]any{"depth": 2}, "image_token_id": 5,
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to, "config.json"), whole, 0o644))

	logits := func(dir string) []byte {
		ck, err := checkpoint.Open(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, ck.Close()) }()
		if dir == to {
			require.Equal(t, []string{"model.visual.patch_embed.proj.weight"}, ck.Skipped())
		}
		be := ref.New()
		defer func() { require.NoError(t, be.Close()) }()
		m, err := Load(be, Checkpoint{ck}, Options{MaxTokens: 64, MTP: true})
		require.NoError(t, err)
		require.NoError(t, m.Reserve(3, 3))
		caches, err := be.Caches(kernels.CacheSpec{Layers: m.Layers(), Slots: 1, Pages: 2, SlotPages: 2, MaxDraft: 8})
		require.NoError(t, err)
		be.Queue().SetPages(caches, 0, 0, []int32{0, 1})
		b := chainOf(t, m, caches, 0, 7, 9, 3)
		return read(t, be.Queue(), m.Forward(be.Queue(), &b, caches).Logits)
	}
	require.Equal(t, logits(dir), logits(to))
}
