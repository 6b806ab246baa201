package model

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels/ref"
)

// int4Tensors are the tensors of an MTP head of 4 bits for a tiny shape: every matrix
// with groups of 32 and scales of 2^-6.
func int4Tensors(t testing.TB, c checkpoint.Config, vocab int) map[string]checkpoint.Data {
	all := map[string]checkpoint.Data{}
	matrix := func(name string, rows, cols int) {
		q := checkpoint.Data{Name: name, DType: checkpoint.U8, Shape: []int{rows, cols / 2}, Bytes: make([]byte, rows*cols/2)}
		for i := range q.Bytes {
			q.Bytes[i] = byte(i*37 + len(name))
		}
		scales := make([]uint16, rows*cols/32)
		for i := range scales {
			scales[i] = 0x3c80
		}
		all[name], all[name+ScaleSuffix] = q, checkpoint.Uint16Data(name+ScaleSuffix, checkpoint.BF16, []int{rows, cols / 32}, scales)
	}
	vector := func(name string, n int) {
		all[name] = checkpoint.Uint16Data(name, checkpoint.BF16, []int{n}, make([]uint16, n))
	}
	h, q, kv := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	matrix("mtp.fc.weight", h, 2*h)
	matrix("mtp.layers.0.self_attn.q_proj.weight", 2*q, h)
	matrix("mtp.layers.0.self_attn.k_proj.weight", kv, h)
	matrix("mtp.layers.0.self_attn.v_proj.weight", kv, h)
	matrix("mtp.layers.0.self_attn.o_proj.weight", h, q)
	matrix("mtp.layers.0.mlp.gate_proj.weight", c.IntermediateSize, h)
	matrix("mtp.layers.0.mlp.up_proj.weight", c.IntermediateSize, h)
	matrix("mtp.layers.0.mlp.down_proj.weight", h, c.IntermediateSize)
	matrix("lm_head.weight", vocab, h)
	for _, n := range []string{"mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight", "mtp.layers.0.input_layernorm.weight", "mtp.layers.0.post_attention_layernorm.weight"} {
		vector(n, h)
	}
	vector("mtp.layers.0.self_attn.q_norm.weight", c.HeadDim)
	vector("mtp.layers.0.self_attn.k_norm.weight", c.HeadDim)
	offsets := make([]byte, 8*vocab)
	for i := range vocab {
		offsets[8*i] = byte(i % 2)
	}
	all["d2t"] = checkpoint.Data{Name: "d2t", DType: checkpoint.I64, Shape: []int{vocab}, Bytes: offsets}
	return all
}

const int4Config = `{"architectures": ["MTPDraftModel"], "hidden_size": 64, "vocab_size": 300, "draft_vocab_size": 200}`

func tinyMTP() checkpoint.Config {
	c := hybrid(64, 96, 4, 2, 1, 32, checkpoint.GDN{NumKHeads: 1, NumVHeads: 2, KDim: 32, VDim: 32, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 300, 1e4)
	c.MaxPositions = 128
	return c
}

func tinyModel(t testing.TB) *Model {
	be := ref.New()
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	m, err := Load(be, Random{ShapeName: "tiny", Shape: tinyMTP(), Seed: 1}, Options{MTP: true})
	require.NoError(t, err)
	return m
}

func writeHead(t testing.TB, config string, tensors map[string]checkpoint.Data) string {
	dir := t.TempDir()
	var list []checkpoint.Data
	for _, d := range tensors {
		list = append(list, d)
	}
	var b bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&b, list, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o600))
	return dir
}

func TestInt4Head(t *testing.T) {
	m := tinyModel(t)
	h, err := m.LoadMTP(writeHead(t, int4Config, int4Tensors(t, m.Config, 200)))
	require.NoError(t, err)
	require.Len(t, h.Tokens(), 200)
	require.EqualValues(t, 4, h.Tokens()[3])
	net, err := h.New(8, 2)
	require.NoError(t, err)
	require.Equal(t, 200, net.Drafted())
	net.Close()
}

func TestBadInt4Heads(t *testing.T) {
	const fc = "mtp.fc.weight"
	for name, c := range map[string]struct {
		change func(all map[string]checkpoint.Data)
		want   string
	}{
		"no scales":     {func(all map[string]checkpoint.Data) { delete(all, fc+ScaleSuffix) }, "mtp.fc.weight_scale"},
		"no matrix":     {func(all map[string]checkpoint.Data) { delete(all, fc) }, fc},
		"another shape": {func(all map[string]checkpoint.Data) { d := all[fc]; d.Shape = []int{128, 32}; all[fc] = d }, "4-bit weights of [64, 128] are U8 [64, 64]"},
		"a group of 16": {func(all map[string]checkpoint.Data) {
			all[fc+ScaleSuffix] = checkpoint.Uint16Data(fc+ScaleSuffix, checkpoint.BF16, []int{64, 8}, make([]uint16, 64*8))
		}, "with a group of [32 64 128] that divides it"},
		"groups that don't divide": {func(all map[string]checkpoint.Data) {
			all[fc+ScaleSuffix] = checkpoint.Uint16Data(fc+ScaleSuffix, checkpoint.BF16, []int{64, 3}, make([]uint16, 64*3))
		}, "with a group of [32 64 128] that divides it"},
		"scales of F16": {func(all map[string]checkpoint.Data) {
			d := all[fc+ScaleSuffix]
			d.DType = checkpoint.F16
			all[fc+ScaleSuffix] = d
		}, "scales of [64, 128] are BF16"},
		"zero points of another shape": {func(all map[string]checkpoint.Data) {
			all[fc+ZeroSuffix] = checkpoint.Data{Name: fc + ZeroSuffix, DType: checkpoint.U8, Shape: []int{64, 2}, Bytes: make([]byte, 128)}
		}, "zero points are U8 [64 4]"},
		"zero point 200": {func(all map[string]checkpoint.Data) {
			all[fc+ZeroSuffix] = checkpoint.Data{Name: fc + ZeroSuffix, DType: checkpoint.U8, Shape: []int{64, 4}, Bytes: bytes.Repeat([]byte{200}, 256)}
		}, "zero point 200; it must be 0..15"},
		"an infinite scale": {func(all map[string]checkpoint.Data) {
			s := make([]uint16, 64*4)
			s[5] = 0x7f80
			all[fc+ScaleSuffix] = checkpoint.Uint16Data(fc+ScaleSuffix, checkpoint.BF16, []int{64, 4}, s)
		}, "row 1 has scale"},
		"a norm of 4 bits": {func(all map[string]checkpoint.Data) {
			d := all["lm_head.weight"]
			d.Name = "mtp.norm.weight"
			all[d.Name] = d
		}, "mtp.norm.weight"},
		"a token too far": {func(all map[string]checkpoint.Data) { all["d2t"].Bytes[8*199] = 200 }, "d2t gives row 199 token 399"},
		"tokens of another n": {func(all map[string]checkpoint.Data) {
			d := all["d2t"]
			d.Shape, d.Bytes = []int{199}, d.Bytes[8:]
			all["d2t"] = d
		}, "d2t"},
	} {
		m := tinyModel(t)
		all := int4Tensors(t, m.Config, 200)
		c.change(all)
		_, err := m.LoadMTP(writeHead(t, int4Config, all))
		require.ErrorContains(t, err, c.want, name)
	}
	m := tinyModel(t)
	_, err := m.LoadMTP(writeHead(t, `{"architectures": ["MTPDraftModel"], "hidden_size": 32, "vocab_size": 300}`, int4Tensors(t, m.Config, 200)))
	require.ErrorContains(t, err, "hidden size is 32")
	_, err = m.LoadMTP(writeHead(t, `{"architectures": ["MTPDraftModel"], "hidden_size": 64, "vocab_size": 300, "draft_vocab_size": 301}`, int4Tensors(t, m.Config, 200)))
	require.ErrorContains(t, err, "draft_vocab_size")
}

// TestTruncatedInt4Head: a file cut anywhere is an error.
func TestTruncatedInt4Head(t *testing.T) {
	m := tinyModel(t)
	dir := writeHead(t, int4Config, int4Tensors(t, m.Config, 200))
	file := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for n := 0; n < len(whole); n += 1 + len(whole)/97 {
		require.NoError(t, os.WriteFile(file, whole[:n], 0o600))
		_, err := m.LoadMTP(dir)
		require.Error(t, err, "%d of %d bytes", n, len(whole))
	}
}

// FuzzInt4Head changes bytes of a head's file; it loads or is an error.
func FuzzInt4Head(f *testing.F) {
	m := tinyModel(f)
	dir := writeHead(f, int4Config, int4Tensors(f, m.Config, 200))
	whole, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(f, err)
	for _, at := range []int{0, 9, 100, 400, 1000, len(whole) - 1} {
		f.Add(uint(at), []byte{0xff})
		f.Add(uint(at), []byte("9"))
	}
	f.Fuzz(func(t *testing.T, at uint, change []byte) {
		bad := bytes.Clone(whole)
		copy(bad[at%uint(len(bad)):], change)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(int4Config), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), bad, 0o600))
		if _, err := tinyModel(t).LoadMTP(dir); err != nil {
			require.NotEmpty(t, err.Error())
		}
	})
}
