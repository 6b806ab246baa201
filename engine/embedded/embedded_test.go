//go:build !noembed

package embedded

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	maxBytes      = 24 << 20
	maxHeadsBytes = 15_000_000
)

// config holds the keys of config.json that fix tensor shapes.
type config struct {
	ModelType    string   `json:"model_type"`
	Hidden       int      `json:"hidden_size"`
	Intermediate int      `json:"intermediate_size"`
	Layers       int      `json:"num_hidden_layers"`
	LayerTypes   []string `json:"layer_types"`
	Interval     int      `json:"full_attention_interval"`
	QHeads       int      `json:"num_attention_heads"`
	KVHeads      int      `json:"num_key_value_heads"`
	HeadDim      int      `json:"head_dim"`
	Conv         int      `json:"linear_conv_kernel_dim"`
	KeyDim       int      `json:"linear_key_head_dim"`
	ValueDim     int      `json:"linear_value_head_dim"`
	KeyHeads     int      `json:"linear_num_key_heads"`
	ValueHeads   int      `json:"linear_num_value_heads"`
	MTPLayers    int      `json:"mtp_num_hidden_layers"`
	Tied         bool     `json:"tie_word_embeddings"`
	Vocab        int      `json:"vocab_size"`
	EOS          int      `json:"eos_token_id"`
}

type tensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	fsys, err := FS()
	require.NoError(t, err)
	b, err := fs.ReadFile(fsys, name)
	require.NoError(t, err)
	require.NotEmpty(t, b, name)
	return b
}

func readConfig(t *testing.T) config {
	t.Helper()
	var c config
	require.NoError(t, json.Unmarshal(read(t, "config.json"), &c))
	return c
}

// header returns the tensors of model.safetensors and the number of data bytes behind the header.
func header(t *testing.T) (map[string]tensor, int) {
	t.Helper()
	b := read(t, "model.safetensors")
	n := int(binary.LittleEndian.Uint64(b))
	var raw map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b[8:8+n], &raw))
	delete(raw, "__metadata__")
	ts := map[string]tensor{}
	for name, r := range raw {
		var x tensor
		require.NoError(t, json.Unmarshal(r, &x), name)
		ts[name] = x
	}
	return ts, len(b) - 8 - n
}

func TestAssetsPresentAndSmall(t *testing.T) {
	total := 0
	for _, name := range []string{
		"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
		"prompts.jsonl", "MODEL_CARD.md",
	} {
		total += len(read(t, name))
	}
	require.LessOrEqual(t, total, maxBytes)
}

// The heads are all there, and small together.
func TestHeadsPresentAndSmall(t *testing.T) {
	total := 0
	for _, name := range []string{"eagle3", "medusa", "dflash", "dspark", "mtp-int4"} {
		total += len(read(t, "heads/"+name+"/config.json")) + len(read(t, "heads/"+name+"/model.safetensors"))
	}
	require.LessOrEqual(t, total, maxHeadsBytes)
}

func attention(c config, p string, out map[string][]int) {
	out[p+"self_attn.q_proj.weight"] = []int{c.QHeads * 2 * c.HeadDim, c.Hidden}
	out[p+"self_attn.k_proj.weight"] = []int{c.KVHeads * c.HeadDim, c.Hidden}
	out[p+"self_attn.v_proj.weight"] = []int{c.KVHeads * c.HeadDim, c.Hidden}
	out[p+"self_attn.o_proj.weight"] = []int{c.Hidden, c.QHeads * c.HeadDim}
	out[p+"self_attn.q_norm.weight"] = []int{c.HeadDim}
	out[p+"self_attn.k_norm.weight"] = []int{c.HeadDim}
}

func deltaNet(c config, p string, out map[string][]int) {
	kd, vd := c.KeyHeads*c.KeyDim, c.ValueHeads*c.ValueDim
	out[p+"linear_attn.in_proj_qkv.weight"] = []int{2*kd + vd, c.Hidden}
	out[p+"linear_attn.in_proj_z.weight"] = []int{vd, c.Hidden}
	out[p+"linear_attn.in_proj_b.weight"] = []int{c.ValueHeads, c.Hidden}
	out[p+"linear_attn.in_proj_a.weight"] = []int{c.ValueHeads, c.Hidden}
	out[p+"linear_attn.conv1d.weight"] = []int{2*kd + vd, 1, c.Conv}
	out[p+"linear_attn.A_log"] = []int{c.ValueHeads}
	out[p+"linear_attn.dt_bias"] = []int{c.ValueHeads}
	out[p+"linear_attn.norm.weight"] = []int{c.ValueDim}
	out[p+"linear_attn.out_proj.weight"] = []int{c.Hidden, vd}
}

func block(c config, p string, out map[string][]int) {
	out[p+"input_layernorm.weight"] = []int{c.Hidden}
	out[p+"post_attention_layernorm.weight"] = []int{c.Hidden}
	out[p+"mlp.gate_proj.weight"] = []int{c.Intermediate, c.Hidden}
	out[p+"mlp.up_proj.weight"] = []int{c.Intermediate, c.Hidden}
	out[p+"mlp.down_proj.weight"] = []int{c.Hidden, c.Intermediate}
}

// expected lists every tensor that the configuration asks for, with its shape.
func expected(c config) map[string][]int {
	out := map[string][]int{
		"model.embed_tokens.weight":        {c.Vocab, c.Hidden},
		"model.norm.weight":                {c.Hidden},
		"mtp.fc.weight":                    {c.Hidden, 2 * c.Hidden},
		"mtp.norm.weight":                  {c.Hidden},
		"mtp.pre_fc_norm_hidden.weight":    {c.Hidden},
		"mtp.pre_fc_norm_embedding.weight": {c.Hidden},
	}
	for i, kind := range c.LayerTypes {
		p := fmt.Sprintf("model.layers.%d.", i)
		block(c, p, out)
		if kind == "full_attention" {
			attention(c, p, out)
		} else {
			deltaNet(c, p, out)
		}
	}
	block(c, "mtp.layers.0.", out)
	attention(c, "mtp.layers.0.", out)
	return out
}

func TestTensorsMatchConfig(t *testing.T) {
	c := readConfig(t)
	require.Equal(t, "qwen3_5_text", c.ModelType)
	require.True(t, c.Tied)
	require.Equal(t, 1, c.MTPLayers)
	require.Len(t, c.LayerTypes, c.Layers)
	for i, kind := range c.LayerTypes {
		require.Equal(t, (i+1)%c.Interval == 0, kind == "full_attention", "layer %d", i)
	}
	ts, size := header(t)
	want := expected(c)
	require.Len(t, ts, len(want))
	bytesSeen := 0
	for name, shape := range want {
		x, ok := ts[name]
		require.True(t, ok, "missing %s", name)
		require.Equal(t, shape, x.Shape, name)
		n, width, dtype := 1, 2, "BF16"
		for _, d := range shape {
			n *= d
		}
		if strings.HasSuffix(name, "A_log") || strings.HasSuffix(name, "dt_bias") {
			width, dtype = 4, "F32"
		}
		require.Equal(t, dtype, x.DType, name)
		require.Equal(t, n*width, x.Offsets[1]-x.Offsets[0], name)
		require.LessOrEqual(t, x.Offsets[1], size, name)
		bytesSeen += n * width
	}
	require.Equal(t, size, bytesSeen, "tensors fill the file")
}

func TestDraftIsCheap(t *testing.T) {
	ts, _ := header(t)
	draft, trunk := 0, 0
	for name, x := range ts {
		n := x.Offsets[1] - x.Offsets[0]
		if strings.HasPrefix(name, "mtp.") {
			draft += n
		} else {
			trunk += n
		}
	}
	head := ts["model.embed_tokens.weight"]
	draft += head.Offsets[1] - head.Offsets[0]
	require.LessOrEqual(t, float64(draft)/float64(trunk), 0.14)
}

func TestWeightsAreNumbers(t *testing.T) {
	ts, size := header(t)
	b := read(t, "model.safetensors")
	data := b[len(b)-size:]
	for name, x := range ts {
		if x.DType != "BF16" {
			continue
		}
		zero, bad := true, 0
		for i := x.Offsets[0]; i < x.Offsets[1]; i += 2 {
			v := binary.LittleEndian.Uint16(data[i:])
			if v&0x7f80 == 0x7f80 {
				bad++
			}
			zero = zero && v&0x7fff == 0
		}
		require.Zero(t, bad, "%s holds Inf or NaN", name)
		require.False(t, zero, "%s is all zero", name)
	}
}

func TestTokenizerMatchesConfig(t *testing.T) {
	c := readConfig(t)
	var tok struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
		Normalizer json.RawMessage `json:"normalizer"`
		Model      struct {
			Type  string         `json:"type"`
			Vocab map[string]int `json:"vocab"`
		} `json:"model"`
	}
	require.NoError(t, json.Unmarshal(read(t, "tokenizer.json"), &tok))
	require.Equal(t, "BPE", tok.Model.Type)
	require.Equal(t, "null", string(tok.Normalizer))
	require.Len(t, tok.Added, 1)
	require.Equal(t, "<|endoftext|>", tok.Added[0].Content)
	require.Equal(t, c.EOS, tok.Added[0].ID)
	ids := map[int]bool{tok.Added[0].ID: true}
	for _, id := range tok.Model.Vocab {
		ids[id] = true
	}
	require.Len(t, ids, c.Vocab, "every id of the config has a token")
}

func TestPrompts(t *testing.T) {
	lines := bytes.Split(bytes.TrimSpace(read(t, "prompts.jsonl")), []byte("\n"))
	require.Len(t, lines, 48)
	seen := map[string]bool{}
	for _, ln := range lines {
		var p struct {
			ID     string `json:"id"`
			Class  string `json:"class"`
			Prompt string `json:"prompt"`
			Source struct {
				Module  string `json:"module"`
				Licence string `json:"licence"`
			} `json:"source"`
		}
		require.NoError(t, json.Unmarshal(ln, &p))
		require.Equal(t, "code", p.Class)
		require.False(t, seen[p.ID], p.ID)
		seen[p.ID] = true
		require.Greater(t, len(p.Prompt), 100, p.ID)
		require.NotEmpty(t, p.Source.Module, p.ID)
		require.Contains(t, []string{"MIT", "BSD", "Apache-2.0"}, p.Source.Licence, p.ID)
	}
}
