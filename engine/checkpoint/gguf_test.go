package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint/gguf"
)

const tinyGGUF = "testdata/llama.gguf"

// The tensors of a GGUF file have the names, the order of rows and the values of the
// checkpoint that it was made of (testdata/make_gguf.py).
func TestGGUFTensors(t *testing.T) {
	ck, err := Open(tinyGGUF)
	require.NoError(t, err)
	defer ck.Close()
	raw, err := os.ReadFile("testdata/llama-gguf.safetensors")
	require.NoError(t, err)
	list, err := ReadSafetensors(raw)
	require.NoError(t, err)
	var names []string
	for _, want := range list {
		names = append(names, want.Name)
		got, err := ck.Tensor(want.Name)
		require.NoError(t, err)
		require.Equal(t, want.Shape, got.Shape, want.Name)
		if got.Stored == "BF16" {
			require.Equal(t, BF16, got.DType)
		} else {
			require.Equal(t, want.DType, got.DType, want.Name)
		}
		require.NoError(t, got.CheckFinite())
		all, err := got.bytes()
		require.NoError(t, err)
		require.EqualValues(t, got.Size(), len(all))
		require.True(t, bytes.Equal(want.data, all), want.Name)

		// Any part of it, across rows, gives the same bytes.
		for _, at := range []int{0, 1, 127, 128, 129, len(all) - 200, len(all) - 1} {
			for _, n := range []int{1, 127, 128, 130, 300} {
				part := make([]byte, n)
				m, err := got.ReadAt(part, int64(max(at, 0)))
				if max(at, 0)+n > len(all) {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, all[max(at, 0):min(max(at, 0)+n, len(all))], part[:m])
			}
		}
		values, err := got.Float32s()
		require.NoError(t, err)
		require.Len(t, values, got.Len())
		require.NoError(t, got.Discard())
	}
	slices.Sort(names)
	require.Equal(t, names, ck.Names())
	require.Equal(t, "tiny", ck.Metadata()["general.name"])
}

func TestGGUFConfig(t *testing.T) {
	ck, err := Open(tinyGGUF)
	require.NoError(t, err)
	defer ck.Close()
	c := ck.Config()
	require.Empty(t, c.Unread)
	require.Equal(t, Config{
		ModelType: "llama", Architecture: "LlamaForCausalLM", Family: Llama,
		HiddenSize: 64, IntermediateSize: 96, NumLayers: 2, NumHeads: 3, NumKVHeads: 1, HeadDim: 16, VocabSize: 265,
		MaxPositions: 128, RMSEps: 1e-5, TieEmbeddings: true, Rope: Rope{Type: RopeDefault, Theta: 50000, PartialFactor: 1},
		LayerTypes: []LayerKind{FullAttention, FullAttention}, BOS: 1, EOS: []int32{2, 0},
	}, c)
	require.Len(t, ck.Hash(), 64)
	require.False(t, ck.HasHead("eagle3"))
	_, err = ck.OpenHead("eagle3")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ck.ReadFile("prompts.jsonl")
	require.ErrorIs(t, err, fs.ErrNotExist)

	text, err := ck.ReadFile("tokenizer_config.json")
	require.NoError(t, err)
	require.JSONEq(t, `{"bos_token":"<|im_start|>","eos_token":"<|im_end|>","chat_template":"{{ bos_token }}{{ messages[0].content }}"}`, string(text))
}

// model is a GGUF file that a test makes: of one layer, with zeros for weights.
type ggufModel struct {
	values  map[string]any
	tensors map[string][]int // row-major
	kinds   map[string]gguf.Type
	data    map[string][]byte
}

func smallGGUF(arch string) *ggufModel {
	m := &ggufModel{kinds: map[string]gguf.Type{}, data: map[string][]byte{}}
	m.values = map[string]any{
		"general.architecture": arch, arch + ".block_count": uint32(1), arch + ".context_length": uint32(64), arch + ".embedding_length": uint32(8),
		arch + ".feed_forward_length": uint32(16), arch + ".attention.head_count": uint32(2), arch + ".attention.layer_norm_rms_epsilon": float32(1e-6),
		arch + ".rope.freq_base": float32(1e6), arch + ".attention.key_length": uint32(8), "tokenizer.ggml.eos_token_id": uint32(3),
	}
	m.tensors = map[string][]int{
		"token_embd.weight": {32, 8}, "output.weight": {32, 8}, "output_norm.weight": {8}, "blk.0.attn_norm.weight": {8}, "blk.0.ffn_norm.weight": {8},
		"blk.0.attn_q.weight": {16, 8}, "blk.0.attn_k.weight": {16, 8}, "blk.0.attn_v.weight": {16, 8}, "blk.0.attn_output.weight": {8, 16},
		"blk.0.ffn_gate.weight": {16, 8}, "blk.0.ffn_up.weight": {16, 8}, "blk.0.ffn_down.weight": {8, 16},
	}
	return m
}

func (m *ggufModel) bytes(t testing.TB) []byte {
	var out bytes.Buffer
	put := func(values ...any) {
		for _, v := range values {
			if s, ok := v.(string); ok {
				v = append(binary.LittleEndian.AppendUint64(nil, uint64(len(s))), s...)
			}
			require.NoError(t, binary.Write(&out, binary.LittleEndian, v))
		}
	}
	put([]byte("GGUF"), uint32(3), uint64(len(m.tensors)), uint64(len(m.values)))
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		put(key)
		switch v := m.values[key].(type) {
		case string:
			put(gguf.String, v)
		case uint32:
			put(gguf.Uint32, v)
		case float32:
			put(gguf.Float32, v)
		case bool:
			put(gguf.Bool, v)
		case []string:
			put(gguf.Array, gguf.String, uint64(len(v)))
			for _, s := range v {
				put(s)
			}
		case []int32:
			put(gguf.Array, gguf.Int32, uint64(len(v)), v)
		case []float32:
			put(gguf.Array, gguf.Float32, uint64(len(v)), v)
		}
	}
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(m.tensors)) {
		shape, n := m.tensors[name], 1
		dims := make([]uint64, len(shape))
		for i, d := range shape {
			dims[len(shape)-1-i] = uint64(d)
			n *= d
		}
		put(name, uint32(len(dims)), dims, m.kinds[name], uint64(len(data)))
		body := m.data[name]
		if body == nil {
			body = make([]byte, m.kinds[name].Size(n))
		}
		data = append(data, body...)
		data = append(data, make([]byte, (32-len(data)%32)%32)...)
	}
	put(make([]byte, (32-out.Len()%32)%32), data)
	return out.Bytes()
}

func (m *ggufModel) open(t testing.TB) (*Checkpoint, error) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, m.bytes(t), 0o644))
	return Open(path)
}

func TestGGUFQwen3(t *testing.T) {
	m := smallGGUF("qwen3")
	m.tensors["blk.0.attn_q_norm.weight"], m.tensors["blk.0.attn_k_norm.weight"] = []int{8}, []int{8}
	rows := make([]float32, 16*8)
	for i := range rows {
		rows[i] = float32(i)
	}
	m.data["blk.0.attn_q.weight"] = Float32Data("", nil, rows).Bytes
	ck, err := m.open(t)
	require.NoError(t, err)
	defer ck.Close()
	c := ck.Config()
	require.Equal(t, []any{Qwen3, 8, 2, 2, false, 1e-6, 1e6}, []any{c.Family, c.HeadDim, c.NumHeads, c.NumKVHeads, c.TieEmbeddings, c.RMSEps, c.Rope.Theta})
	require.True(t, ck.Has("model.layers.0.self_attn.k_norm.weight"))
	require.True(t, ck.Has("lm_head.weight"))
	x, err := ck.Tensor("model.layers.0.self_attn.q_proj.weight")
	require.NoError(t, err)
	got, err := x.Float32s()
	require.NoError(t, err)
	require.Equal(t, rows, got, "qwen3's rows lie as they are")
	_, err = ck.ReadFile("tokenizer.json")
	require.ErrorIs(t, err, fs.ErrNotExist, "a file without a vocabulary has no tokenizer")
}

// The experts of a layer appear as a matrix for each, quantised ones too.
func TestGGUFExperts(t *testing.T) {
	m := smallGGUF("qwen3moe")
	for _, name := range []string{"gate", "up", "down"} {
		delete(m.tensors, "blk.0.ffn_"+name+".weight")
		m.tensors["blk.0.ffn_"+name+"_exps.weight"] = []int{3, 4, 8}
	}
	m.tensors["blk.0.ffn_down_exps.weight"] = []int{3, 2, 32}
	m.kinds["blk.0.ffn_down_exps.weight"] = gguf.Q8_0
	m.tensors["blk.0.attn_q_norm.weight"], m.tensors["blk.0.attn_k_norm.weight"] = []int{8}, []int{8}
	m.tensors["blk.0.ffn_gate_inp.weight"] = []int{3, 8}
	values := make([]float32, 3*4*8)
	for i := range values {
		values[i] = float32(i)
	}
	m.data["blk.0.ffn_up_exps.weight"] = Float32Data("", nil, values).Bytes
	var q8 []byte // rows of one block: the scale 1, and the row's number
	for row := range 3 * 2 {
		q8 = append(append(q8, 0x00, 0x3c), bytes.Repeat([]byte{byte(row)}, 32)...)
	}
	m.data["blk.0.ffn_down_exps.weight"] = q8
	m.values["qwen3moe.expert_count"], m.values["qwen3moe.expert_used_count"], m.values["qwen3moe.expert_feed_forward_length"] = uint32(3), uint32(2), uint32(4)
	ck, err := m.open(t)
	require.NoError(t, err)
	defer ck.Close()
	c := ck.Config()
	require.Equal(t, []any{Qwen3MoE, 3, 2, 4, true, []bool{true}}, []any{c.Family, c.MoE.Experts, c.MoE.PerToken, c.MoE.Size, c.MoE.Normalize, c.Sparse})
	require.True(t, ck.Has("model.layers.0.mlp.gate.weight"))
	for e := range 3 {
		x, err := ck.Tensor(fmt.Sprintf("model.layers.0.mlp.experts.%d.up_proj.weight", e))
		require.NoError(t, err)
		require.Equal(t, []int{4, 8}, x.Shape)
		got, err := x.Float32s()
		require.NoError(t, err)
		require.Equal(t, values[e*32:(e+1)*32], got)
		x, err = ck.Tensor(fmt.Sprintf("model.layers.0.mlp.experts.%d.down_proj.weight", e))
		require.NoError(t, err)
		require.Equal(t, BF16, x.DType)
		got, err = x.Float32s()
		require.NoError(t, err)
		require.Equal(t, slices.Concat(slices.Repeat([]float32{float32(2 * e)}, 32), slices.Repeat([]float32{float32(2*e + 1)}, 32)), got)
	}
	m.tensors["blk.0.ffn_gate_exps.weight"] = []int{12, 8}
	_, err = m.open(t)
	require.ErrorContains(t, err, "experts must have three dimensions")
}

// Llama 3's scaling of frequencies is found in its tensor.
func TestGGUFRopeScaling(t *testing.T) {
	const dim, theta = 64, 5e5
	divisors := func(factor float64) []float32 {
		out := make([]float32, dim/2)
		for i := range out {
			freq := 1 / math.Pow(theta, 2*float64(i)/dim)
			wave := 2 * math.Pi / freq
			switch {
			case wave < 8192/4:
				out[i] = 1
			case wave > 8192:
				out[i] = float32(factor)
			default:
				s := (8192/wave - 1) / (4 - 1)
				out[i] = float32(1 / ((1-s)/factor + s))
			}
		}
		return out
	}
	open := func(values []float32) (*Checkpoint, error) {
		m := smallGGUF("llama")
		m.values["llama.attention.key_length"], m.values["llama.rope.freq_base"] = uint32(dim), float32(theta)
		for _, name := range []string{"q", "k", "v"} {
			m.tensors["blk.0.attn_"+name+".weight"] = []int{2 * dim, 8}
		}
		m.tensors[ropeFreqs] = []int{dim / 2}
		m.data[ropeFreqs] = Float32Data("", nil, values).Bytes
		return m.open(t)
	}
	for _, factor := range []float64{8, 32} {
		ck, err := open(divisors(factor))
		require.NoError(t, err)
		require.Equal(t, Rope{Type: RopeLlama3, Theta: theta, PartialFactor: 1, Factor: factor, LowFreq: 1, HighFreq: 4, OriginalSize: 8192}, ck.Config().Rope)
		require.Equal(t, []string{ropeFreqs}, ck.Skipped())
		require.NoError(t, ck.Close())
	}
	ck, err := open(divisors(1))
	require.NoError(t, err)
	require.Equal(t, RopeDefault, ck.Config().Rope.Type)
	require.NoError(t, ck.Close())
	bad := divisors(8)
	bad[16] *= 1.01
	_, err = open(bad)
	require.ErrorContains(t, err, `"rope_freqs.weight": divisor 16`)
}

func TestGGUFRefuses(t *testing.T) {
	for want, change := range map[string]func(m *ggufModel){
		`general.architecture is "mamba"; known are `:                                      func(m *ggufModel) { m.values["general.architecture"] = "mamba" },
		`no tensor "token_embd.weight"`:                                                    func(m *ggufModel) { delete(m.tensors, "token_embd.weight") },
		`model.gguf: llama.block_count is 0`:                                               func(m *ggufModel) { m.values["llama.block_count"] = uint32(0) },
		`model.gguf: llama.embedding_length is missing`:                                    func(m *ggufModel) { delete(m.values, "llama.embedding_length") },
		`model.gguf: llama.attention.layer_norm_rms_epsilon is "x"`:                        func(m *ggufModel) { m.values["llama.attention.layer_norm_rms_epsilon"] = "x" },
		`llama.rope.dimension_count is 4; it must be the width of a head, 8`:               func(m *ggufModel) { m.values["llama.rope.dimension_count"] = uint32(4) },
		`llama.rope.scaling.type is "yarn"`:                                                func(m *ggufModel) { m.values["llama.rope.scaling.type"] = "yarn" },
		`tensor "blk.0.attn_q.bias": a model of type llama has no such tensor`:             func(m *ggufModel) { m.tensors["blk.0.attn_q.bias"] = []int{8} },
		`tensor "blk.0.attn_v.weight": I32 is not supported; supported are F32, F16, Q4_0`: func(m *ggufModel) { m.kinds["blk.0.attn_v.weight"] = 26 },
		`tensor "blk.0.attn_k.weight": 12 rows are no whole number of heads of 8`:          func(m *ggufModel) { m.tensors["blk.0.attn_k.weight"] = []int{12, 8} },
		`it is one of 3 files of a model; give the first, named ...-00001-of-00003.gguf`:   func(m *ggufModel) { m.values["split.count"] = uint32(3) },
		`split.count is not a number of files`:                                             func(m *ggufModel) { m.values["split.count"] = "x" },
		`llama.attention.head_count is 3; it must divide llama.embedding_length, which is 8`: func(m *ggufModel) {
			delete(m.values, "llama.attention.key_length")
			m.values["llama.attention.head_count"] = uint32(3)
		},
	} {
		m := smallGGUF("llama")
		change(m)
		_, err := m.open(t)
		require.ErrorContains(t, err, want)
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	_, err := Open(path)
	require.ErrorContains(t, err, `does not begin with "GGUF"`)
}

func TestGGUFVocabularyRefuses(t *testing.T) {
	pieces := func(key string, value any) func(v map[string]any) {
		return func(v map[string]any) {
			v["model"], v["scores"] = "llama", []float32{0, -1, -2}
			v[key] = value
		}
	}
	for want, change := range map[string]func(v map[string]any){
		`tokenizer.ggml.model is "t5"; known are "gpt2", byte-level BPE, and "llama", SentencePiece's BPE`: pieces("model", "t5"),
		`tokenizer.ggml.scores is not a list of 3 float32`:                                                 pieces("scores", []float32{1}),
		`tokenizer.ggml.scores: that of token 1 is NaN`:                                                    pieces("scores", []float32{1, float32(math.NaN()), 2}),
		`tokenizer.ggml.remove_extra_whitespaces is true; that is not supported`:                           pieces("remove_extra_whitespaces", true),
		`tokenizer.ggml.precompiled_charsmap is there; normalisation by it is not supported`:               pieces("precompiled_charsmap", []int32{1}),
		`tokenizer.ggml.tokens: 1 is not valid UTF-8`:                                                      pieces("tokens", []string{"a", "\xff", "b"}),
		`tokenizer.ggml.model is "bert"`:                                                                   func(v map[string]any) { v["model"] = "bert" },
		`tokenizer.ggml.pre is "other"; known are deepseek`:                                                func(v map[string]any) { v["pre"] = "other" },
		`tokenizer.ggml.tokens is not a list of texts`:                                                     func(v map[string]any) { v["tokens"] = "x" },
		`tokenizer.ggml.merges is not a list of texts`:                                                     func(v map[string]any) { delete(v, "merges") },
		`token_type is not a list of 3 numbers`:                                                            func(v map[string]any) { v["token_type"] = []int32{1} },
		`tokenizer.ggml.tokens: 0 and 2 are both "a"`:                                                      func(v map[string]any) { v["tokens"] = []string{"a", "b", "a"} },
		`tokenizer.ggml.bos_token_id is 9; ids are 0 to 2`:                                                 func(v map[string]any) { v["bos_token_id"], v["add_bos_token"] = uint32(9), true },
		`tokenizer.ggml.add_eos_token is true`:                                                             func(v map[string]any) { v["add_eos_token"] = true },
	} {
		m := smallGGUF("llama")
		v := map[string]any{"model": "gpt2", "pre": "gpt-2", "tokens": []string{"a", "b", "ab"}, "token_type": []int32{1, 1, 1}, "merges": []string{"a b"}}
		change(v)
		for key, value := range v {
			m.values["tokenizer.ggml."+key] = value
		}
		ck, err := m.open(t)
		require.NoError(t, err)
		_, err = ck.ReadFile("tokenizer.json")
		require.ErrorContains(t, err, want)
		require.False(t, errors.Is(err, fs.ErrNotExist))
		require.NoError(t, ck.Close())
	}
}

// A model that is cut into several files is opened by the first.
func TestGGUFSplits(t *testing.T) {
	d := t.TempDir()
	first, second := smallGGUF("llama"), &ggufModel{values: map[string]any{}, tensors: map[string][]int{}, kinds: map[string]gguf.Type{}}
	for name, shape := range first.tensors {
		if name > "blk.0.g" {
			second.tensors[name] = shape
			if name != "token_embd.weight" { // names that a test below puts into both
				delete(first.tensors, name)
			}
		}
	}
	delete(second.tensors, "token_embd.weight")
	first.values["split.count"], first.values["split.no"] = uint32(2), uint32(0)
	second.values["split.count"], second.values["split.no"] = uint32(2), uint32(1)
	write := func(m *ggufModel, i int) {
		require.NoError(t, os.WriteFile(filepath.Join(d, fmt.Sprintf("m-%05d-of-00002.gguf", i)), m.bytes(t), 0o644))
	}
	write(first, 1)
	path := filepath.Join(d, "m-00001-of-00002.gguf")
	_, err := Open(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	write(second, 2)
	ck, err := Open(path)
	require.NoError(t, err)
	require.Len(t, ck.Names(), 12)
	x, err := ck.Tensor("lm_head.weight")
	require.NoError(t, err)
	require.Equal(t, "m-00002-of-00002.gguf", x.File)
	require.NoError(t, ck.Close())

	second.values["split.no"] = uint32(0)
	write(second, 2)
	_, err = Open(path)
	require.ErrorContains(t, err, "m-00002-of-00002.gguf: split.no must be 1")
	second.values["split.no"] = uint32(1)
	second.tensors["token_embd.weight"] = []int{32, 8}
	write(second, 2)
	_, err = Open(path)
	require.ErrorContains(t, err, `tensor "token_embd.weight" is in two of the files`)
}

// No metadata makes the reader fail otherwise than by an error.
func FuzzGGUF(f *testing.F) {
	raw, err := os.ReadFile(tinyGGUF)
	require.NoError(f, err)
	f.Add(raw[:8000])
	f.Add(smallGGUF("llama").bytes(f))
	m := smallGGUF("qwen3")
	m.values["tokenizer.ggml.model"], m.values["tokenizer.ggml.pre"] = "gpt2", "qwen2"
	m.values["tokenizer.ggml.tokens"], m.values["tokenizer.ggml.merges"] = []string{"a", "b", "ab"}, []string{"a b"}
	m.values["tokenizer.ggml.token_type"] = []int32{1, 3, 4}
	f.Add(m.bytes(f))
	m.values["tokenizer.ggml.model"], m.values["tokenizer.ggml.scores"] = "llama", []float32{-1, 0, 3}
	m.values["tokenizer.ggml.add_space_prefix"], m.values["tokenizer.ggml.unknown_token_id"] = true, uint32(1)
	f.Add(m.bytes(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o644))
		ck, err := Open(path)
		if err != nil {
			return
		}
		for _, name := range ck.Names() {
			x, err := ck.Tensor(name)
			require.NoError(t, err)
			_ = x.CheckFinite()
		}
		if text, err := ck.ReadFile("tokenizer.json"); err == nil {
			require.True(t, json.Valid(text))
		}
		require.NoError(t, ck.Close())
	})
}
