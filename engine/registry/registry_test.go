package registry

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
)

// The tokenizer that a GGUF file's vocabulary makes gives the ids of the library
// tokenizers (checkpoint/testdata/make_gguf.py).
func TestGGUFTokenizer(t *testing.T) {
	e, err := Open("../checkpoint/testdata/llama.gguf")
	require.NoError(t, err)
	defer e.Close()
	raw, err := os.ReadFile("../checkpoint/testdata/llama-gguf.json")
	require.NoError(t, err)
	var list []struct {
		Text string
		IDs  []int32
	}
	require.NoError(t, json.Unmarshal(raw, &list))
	require.NotEmpty(t, list)
	for _, c := range list {
		require.Equal(t, c.IDs, e.Tokenizer.Encode(c.Text, false), c.Text)
		require.Equal(t, append([]int32{1}, c.IDs...), e.Tokenizer.Encode(c.Text, true), "the file asks for a token at the beginning")
		require.Equal(t, c.Text, e.Tokenizer.Decode(c.IDs, false))
	}
	require.True(t, e.Tokenizer.IsSpecial(1))
	id, ok := e.Tokenizer.ID("<tool>")
	require.True(t, ok)
	require.False(t, e.Tokenizer.IsSpecial(id))
	_, ok = e.Tokenizer.ID("[PAD0]")
	require.False(t, ok, "unused ids have no token")
	prompts, err := e.Prompts()
	require.NoError(t, err)
	require.Empty(t, prompts)
}

// A checkpoint of 8 bits is expanded once, and says where; one with parts of other
// media says what it leaves out.
func TestNotes(t *testing.T) {
	dir := t.TempDir()
	w := func(name string, dtype checkpoint.DType, shape ...int) checkpoint.Data {
		n := dtype.Size()
		for _, d := range shape {
			n *= d
		}
		return checkpoint.Data{Name: name, DType: dtype, Shape: shape, Bytes: make([]byte, n)}
	}
	var out bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&out, []checkpoint.Data{
		w("language_model.model.embed_tokens.weight", checkpoint.BF16, 8, 4), w("vision_tower.a.weight", checkpoint.BF16, 2),
		w("multi_modal_projector.weight", checkpoint.BF16, 2),
		w("language_model.model.layers.0.mlp.up_proj.weight", checkpoint.F8E4M3, 4, 4), w("language_model.model.layers.0.mlp.up_proj.weight_scale", checkpoint.F32, 1),
	}, nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), out.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"qwen3_5","quantization_config":{"quant_method":"fp8"},"vision_config":{},"text_config":{
		"model_type":"qwen3_5_text","hidden_size":4,"intermediate_size":4,"num_hidden_layers":1,"num_attention_heads":1,"num_key_value_heads":1,"head_dim":8,
		"vocab_size":8,"max_position_embeddings":16,"rms_norm_eps":1e-6,"rope_parameters":{"rope_theta":1e4},"full_attention_interval":1,"tie_word_embeddings":true,
		"linear_num_key_heads":1,"linear_num_value_heads":1,"linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4}}`), 0o644))
	cache := t.TempDir()
	t.Setenv("EXACTA_CACHE", cache)
	for range 2 {
		e, err := Open(dir)
		require.NoError(t, err)
		require.Equal(t, []string{
			"2 tensors are left out, such as multi_modal_projector.weight: they are not of the text model",
			"the weights are expanded to BF16, in " + filepath.Join(cache, "expanded") + " (EXACTA_CACHE says where)",
		}, e.Notes)
		require.Equal(t, []string{"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"}, e.Tensors())
		require.Empty(t, e.CheckFinite(t.Context()))
		require.NoError(t, e.Close())
	}
	files, err := filepath.Glob(cache + "/expanded/*/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	t.Setenv("EXACTA_CACHE", "off")
	e, err := Open(dir)
	require.NoError(t, err)
	require.Len(t, e.Notes, 1)
	require.NoError(t, e.Close())
	t.Setenv("EXACTA_CACHE", files[0])
	e, err = Open(dir)
	require.NoError(t, err, "a cache that can't be written costs time alone")
	require.Contains(t, e.Notes[1], "each time they load")
	require.NoError(t, e.Close())
}

func TestOpenUnknown(t *testing.T) {
	_, err := Open("no/such/model")
	require.ErrorContains(t, err, "no such file or directory")
	_, err = Open("embeded")
	require.ErrorContains(t, err, `model "embeded": no such file or directory, and not a known name; use embedded, random:SHAPE`)
}

// The id of a model is found in the cache of the Hugging Face libraries, or else the
// error names the command that fetches it.
func TestOpenID(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	_, err := Open("org/tiny")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "exacta pull org/tiny fetches it")

	const sha = "0123456789abcdef0123456789abcdef01234567"
	folder := filepath.Join(cache, "models--org--tiny")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "refs"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "refs", "main"), []byte(sha), 0o644))
	require.NoError(t, os.CopyFS(filepath.Join(folder, "snapshots", sha), os.DirFS("../model/testdata/qwen3")))
	raw, err := os.ReadFile("../checkpoint/testdata/llama.gguf")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "snapshots", sha, "tiny.gguf"), raw, 0o644))
	for name, want := range map[string]checkpoint.Family{"org/tiny": checkpoint.Qwen3, "org/tiny@" + sha: checkpoint.Qwen3, "org/tiny/tiny.gguf": checkpoint.Llama} {
		e, err := Open(name)
		require.NoError(t, err)
		require.Equal(t, name, e.Name)
		require.Equal(t, want, e.Source.Config().Family)
		require.NoError(t, e.Close())
		s, err := Examine(name)
		require.NoError(t, err)
		require.NotEmpty(t, s.Tensors)
	}
}
