package experiments

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
)

// TestQuantize makes heads of 4 bits of all that come with the embedded model and holds
// them to their size, to nearly the acceptance of the BF16 head, and to the same output.
func TestQuantize(t *testing.T) {
	e, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	require.NoError(t, e.Close())
	corpus := filepath.Join(t.TempDir(), "corpus.txt")
	var text []byte
	for range 40 {
		text = append(text, "func (s *Server) Close() error {\n\tif err := s.err; err != nil {\n\t\treturn err\n\t}\n\treturn nil\n}\n\n"...)
	}
	require.NoError(t, os.WriteFile(corpus, text, 0o600))
	eagle := eagleFiles(t, e.Source.Config())
	for name, c := range map[string]struct {
		change   func(o *QuantizeOptions)
		size     float64
		accepted float64
		vocab    int
	}{
		"gptq":         {func(o *QuantizeOptions) { o.Group, o.ZeroPoints = 32, true }, 0.30, 0.96, 4096},
		"rtn":          {func(o *QuantizeOptions) { o.Method = "rtn" }, 0.27, 0.92, 4096},
		"vocabulary":   {func(o *QuantizeOptions) { o.Vocab, o.Corpus = 2048, corpus }, 0.20, 0.3, 2048},
		"one sequence": {func(o *QuantizeOptions) { o.K, o.Limit, o.Method = 7, 2, "rtn" }, 0.27, 0.5, 4096},
		"eagle3":       {func(o *QuantizeOptions) { o.Head, o.Limit, o.Tokens = "eagle3", 3, 24 }, 0.27, 0.9, 3072},
		"medusa": {func(o *QuantizeOptions) {
			o.Head, o.Method, o.Limit, o.Tokens, o.Vocab, o.Corpus = "medusa", "rtn", 1, 24, 1024, corpus
		}, 0.13, 0.3, 1024},
		"eagle from files": {func(o *QuantizeOptions) {
			o.Head, o.From, o.Method, o.Limit, o.Tokens, o.Vocab, o.Corpus = "eagle", eagle, "rtn", 1, 8, 2048, corpus
		}, 0.20, 0, 2048},
		"dspark": {func(o *QuantizeOptions) {
			o.Head, o.Group, o.Method, o.Limit, o.Tokens, o.Vocab, o.Corpus = "dspark", 32, "rtn", 1, 24, 2048, corpus
		}, 0.25, 0.3, 2048},
		"dflash": {func(o *QuantizeOptions) {
			o.Head, o.K, o.Limit, o.Tokens, o.Vocab, o.Corpus = "dflash", 9, 2, 24, 2048, corpus
		}, 0.22, 0.3, 2048},
	} {
		o := QuantizeOptions{
			Head: "mtp", Model: registry.Embedded, Backend: "cpu", Group: 64, Method: "gptq", Pieces: 16, K: 3, Tokens: 48, Limit: 8, Out: filepath.Join(t.TempDir(), "head"),
		}
		c.change(&o)
		r, err := Quantize(t.Context(), o, func(string) {})
		require.NoError(t, err, name)
		require.True(t, r.Exact, "%s: other tokens than with the BF16 head", name)
		require.LessOrEqual(t, r.Bytes.Ratio, c.size, name)
		require.GreaterOrEqual(t, r.Accepted.Ratio, c.accepted, "%s: %+v", name, r)
		require.Equal(t, c.vocab, r.Vocab, name)
		require.LessOrEqual(t, r.K, o.K, name)
	}
}

// eagleFiles writes an EAGLE head of random weights for a model.
func eagleFiles(t *testing.T, c checkpoint.Config) string {
	t.Helper()
	src, err := model.Random{ShapeName: "eagle", Shape: c, Seed: 1}.OpenHead("eagle")
	require.NoError(t, err)
	h, q, kv, n := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim, c.IntermediateSize
	var all []checkpoint.Data
	for _, x := range []struct {
		name       string
		rows, cols int
	}{
		{"fc.weight", h, 2 * h}, {"fc.bias", 1, h}, {"layers.0.post_attention_layernorm.weight", 1, h},
		{"layers.0.self_attn.q_proj.weight", q, h}, {"layers.0.self_attn.k_proj.weight", kv, h}, {"layers.0.self_attn.v_proj.weight", kv, h},
		{"layers.0.self_attn.o_proj.weight", h, q}, {"layers.0.mlp.gate_proj.weight", n, h}, {"layers.0.mlp.up_proj.weight", n, h},
		{"layers.0.mlp.down_proj.weight", h, n},
	} {
		m, err := src.Matrix(x.name, x.rows, x.cols)
		require.NoError(t, err)
		raw := make([]byte, 2*x.rows*x.cols)
		_, err = m.Data.ReadAt(raw, 0)
		require.NoError(t, err)
		all = append(all, checkpoint.Data{Name: x.name, DType: checkpoint.BF16, Shape: []int{x.rows, x.cols}, Bytes: raw})
	}
	var b bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&b, all, nil))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o600))
	config := fmt.Sprintf(`{"architectures": ["EAGLEModel"], "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": 1,
		"num_attention_heads": %d, "num_key_value_heads": %d, "head_dim": %d, "vocab_size": %d, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6}`,
		h, n, c.NumHeads, c.NumKVHeads, c.HeadDim, c.VocabSize)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	return dir
}

func TestQuantizeRefuses(t *testing.T) {
	good := QuantizeOptions{Head: "mtp", Model: "random:embedded", Backend: "cpu", Group: 64, Method: "rtn", K: 3, Tokens: 8, Out: t.TempDir()}
	for want, change := range map[string]func(o *QuantizeOptions){
		`quantize "lm"`:                       func(o *QuantizeOptions) { o.Head = "lm" },
		"has random weights":                  func(o *QuantizeOptions) { o.Head = "medusa" },
		"quantize eagle3: open head /nowhere": func(o *QuantizeOptions) { o.Head, o.From = "eagle3", "/nowhere" },
		`method "awq"`:                        func(o *QuantizeOptions) { o.Method = "awq" },
		"group 48":                            func(o *QuantizeOptions) { o.Group = 48 },
		"name the directory":                  func(o *QuantizeOptions) { o.Out = "" },
		"k 0":                                 func(o *QuantizeOptions) { o.K = 0 },
		"tokens must":                         func(o *QuantizeOptions) { o.Tokens = 0 },
		"pieces 0":                            func(o *QuantizeOptions) { o.Corpus = "corpus.txt" },
		"a corpus is needed":                  func(o *QuantizeOptions) { o.Vocab = 100 },
		"unknown shape":                       func(o *QuantizeOptions) { o.Model = "random:none" },
		"group 128 does not divide the 192 columns": func(o *QuantizeOptions) { o.Model, o.Group = registry.Embedded, 128 },
	} {
		o := good
		change(&o)
		_, err := Quantize(t.Context(), o, func(string) {})
		require.ErrorContains(t, err, want, want)
	}
}
