package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"exacta.dev/exacta/engine/checkpoint/gguf"
)

// ropeFreqs is the tensor in which a GGUF file keeps the scaling of Llama 3: what
// each rotary frequency is divided by.
const ropeFreqs = "rope_freqs.weight"

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ggufFields gathers the fields of a config.json from a file's metadata.
type ggufFields struct {
	head *gguf.File
	out  map[string]any
	keys map[string]string // key of config.json -> key of the file
}

// take copies the value of a key, if the file has it, under another name.
func (g *ggufFields) take(field, key string) {
	v, ok := g.head.Values[key]
	if !ok {
		return
	}
	g.keys[field] = key
	if n, ok := v.Integer(); ok {
		g.out[field] = n
	} else if x, ok := v.Number(); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
		g.out[field] = x
	} else if s, ok := v.Text(); ok {
		g.out[field] = s
	} else {
		g.out[field] = fmt.Sprintf("a value of kind %s", v.Kind)
	}
}

// ggufConfig makes the text of a config.json out of a file's metadata, and says
// which of the file's keys stand behind its fields.
func ggufConfig(f *gguf.File, name string, arch ggufArch, tensors map[string]gguf.Tensor) (text []byte, keys map[string]string, err error) {
	embedding, ok := tensors["token_embd.weight"]
	if !ok || len(embedding.Shape) != 2 {
		return nil, nil, errors.New(`there is no tensor "token_embd.weight" with two dimensions`)
	}
	_, untied := tensors["output.weight"]
	g := &ggufFields{head: f, keys: map[string]string{"": "general.architecture"}, out: map[string]any{
		"model_type": arch.modelType, "architectures": []string{arch.architecture},
		"vocab_size": embedding.Shape[0], "tie_word_embeddings": !untied,
	}}
	for field, key := range map[string]string{
		"hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
		"num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
		"head_dim": "attention.key_length", "max_position_embeddings": "context_length",
		"rms_norm_eps": "attention.layer_norm_rms_epsilon", "sliding_window": "attention.sliding_window",
	} {
		g.keys[field] = name + "." + key
		g.take(field, name+"."+key)
	}
	g.moe(name)
	g.take("bos_token_id", "tokenizer.ggml.bos_token_id")
	g.out["eos_token_id"] = g.ends()
	if err := g.heads(name); err != nil {
		return nil, nil, err
	}
	if err := g.rope(name, tensors); err != nil {
		return nil, nil, err
	}
	text, err = json.Marshal(g.out)
	return text, g.keys, err
}

// ends lists the ids that end a text or a turn.
func (g *ggufFields) ends() []int64 {
	ids := []int64{}
	for _, key := range []string{"eos", "eot", "eom"} {
		if id, ok := g.head.Values["tokenizer.ggml."+key+"_token_id"].Integer(); ok {
			ids = append(ids, id)
		}
	}
	g.keys["eos_token_id"] = "tokenizer.ggml.eos_token_id"
	return ids
}

// heads fills in what the format leaves out.
func (g *ggufFields) heads(name string) error {
	integer := func(key string) (int64, bool) { return g.head.Values[name+"."+key].Integer() }
	if _, ok := g.out["num_key_value_heads"]; !ok {
		g.out["num_key_value_heads"] = g.out["num_attention_heads"]
	}
	dim, ok := integer("attention.key_length")
	if !ok {
		hidden, _ := integer("embedding_length")
		heads, _ := integer("attention.head_count")
		if heads <= 0 || hidden%heads != 0 {
			return fmt.Errorf("%s.attention.head_count is %d; it must divide %s.embedding_length, which is %d, as %s.attention.key_length is not given", name, heads, name, hidden, name)
		}
		dim = hidden / heads
		g.out["head_dim"] = dim
	}
	for _, key := range []string{"attention.value_length", "rope.dimension_count"} {
		if n, ok := integer(key); ok && n != dim {
			return fmt.Errorf("%s.%s is %d; it must be the width of a head, %d", name, key, n, dim)
		}
	}
	return nil
}

// rope translates the rotary embedding.
func (g *ggufFields) rope(name string, tensors map[string]gguf.Tensor) error {
	rope := map[string]any{"rope_theta": 10000.0}
	g.keys["rope_parameters.rope_theta"] = name + ".rope.freq_base"
	if v, ok := g.head.Values[name+".rope.freq_base"]; ok {
		rope["rope_theta"], _ = v.Number()
	}
	kind, _ := g.head.Values[name+".rope.scaling.type"].Text()
	if kind != "" && kind != "none" {
		g.keys["rope_parameters.rope_type"] = name + ".rope.scaling.type"
		g.keys["rope_parameters.factor"] = name + ".rope.scaling.factor"
		rope["rope_type"] = kind
		rope["factor"], _ = g.head.Values[name+".rope.scaling.factor"].Number()
	}
	if t, ok := tensors[ropeFreqs]; ok {
		theta, _ := rope["rope_theta"].(float64)
		factor, err := llama3Factor(t, theta)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", ropeFreqs, err)
		}
		if factor != 1 {
			rope["rope_type"], rope["factor"] = RopeLlama3, factor
			rope["low_freq_factor"], rope["high_freq_factor"] = 1, 4
			rope["original_max_position_embeddings"] = llama3Original
		}
	}
	g.out["rope_parameters"] = rope
	return nil
}

// llama3Original is the context that every Llama 3 was first trained at.
const llama3Original = 8192

// llama3Factor finds the factor of Llama 3's scaling in the divisors that a file
// has, and checks that they are that scaling's.
func llama3Factor(t gguf.Tensor, theta float64) (float64, error) {
	if t.Type != gguf.F32 || len(t.Shape) != 1 {
		return 0, fmt.Errorf("it is %s %v; it must be F32 with one dimension", t.Type, t.Shape)
	}
	have := make([]float32, t.Shape[0])
	t.Type.Expand(have, t.Data)
	factor := float64(slices.Max(have))
	for i, got := range have {
		wave := 2 * math.Pi * math.Pow(theta, float64(i)/float64(len(have)))
		want := 1.0
		switch {
		case wave > llama3Original:
			want = factor
		case wave >= llama3Original/4.0:
			smooth := (llama3Original/wave - 1) / 3
			want = 1 / ((1-smooth)/factor + smooth)
		}
		if !(math.Abs(float64(got)-want) <= 1e-3*want) {
			return 0, fmt.Errorf("divisor %d is %g; the scaling of Llama 3 with factor %g has %g, and others are not known", i, got, factor, want)
		}
	}
	return factor, nil
}

// ggufConfigError names the file's key in an error about the configuration made of
// it.
func ggufConfigError(err error, file string, keys map[string]string) error {
	var bad *ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	out := *bad
	out.File = file
	if key, ok := keys[bad.Key]; ok {
		out.Key = key
	}
	return &out
}
