package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// smallConfig is a config.json of one layer that all checkpoints here share.
const smallConfig = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":16,
	"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":32,"max_position_embeddings":64,"rms_norm_eps":1e-5,"eos_token_id":2}`

func weights(t testing.TB, tensors ...Data) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, WriteSafetensors(&out, tensors, map[string]string{"format": "pt"}))
	return out.String()
}

func bf16(name string, n int) Data {
	bits := make([]uint16, n)
	for i := range bits {
		bits[i] = uint16(0x3f00 + i)
	}
	return Uint16Data(name, BF16, []int{n}, bits)
}

func index(t testing.TB, fileOf map[string]string) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": fileOf})
	require.NoError(t, err)
	return string(text)
}

func dir(t testing.TB, files map[string]string) string {
	t.Helper()
	d := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(d, name), []byte(text), 0o644))
	}
	return d
}

// both opens the same files from disk (mapped) and from memory.
func both(t *testing.T, files map[string]string, body func(t *testing.T, ck *Checkpoint, err error)) {
	t.Run("disk", func(t *testing.T) {
		ck, err := Open(dir(t, files))
		body(t, ck, err)
		if err == nil {
			require.NoError(t, ck.Close())
		}
	})
	t.Run("memory", func(t *testing.T) {
		fsys := fstest.MapFS{}
		for name, text := range files {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		ck, err := OpenFS(fsys, "embedded")
		body(t, ck, err)
		if err == nil {
			require.NoError(t, ck.Close())
		}
	})
}

func TestOpenSingle(t *testing.T) {
	both(t, map[string]string{
		"config.json":            smallConfig,
		"generation_config.json": `{"eos_token_id":[3,2],"temperature":0.6}`,
		"model.safetensors":      weights(t, bf16("model.norm.weight", 8), Float32Data("lm_head.weight", []int{2, 2}, []float32{1, 2, 3, 4})),
		"tokenizer.json":         "{}",
	}, func(t *testing.T, ck *Checkpoint, err error) {
		require.NoError(t, err)
		require.Equal(t, []string{"lm_head.weight", "model.norm.weight"}, ck.Names())
		require.True(t, ck.Has("model.norm.weight"))
		require.False(t, ck.Has("model.norm.bias"))
		require.Equal(t, []int32{2, 3}, ck.Config().EOS, "config.json first, then what generation_config.json adds")
		require.Equal(t, map[string]string{"format": "pt"}, ck.Metadata())
		x, err := ck.Tensor("model.norm.weight")
		require.NoError(t, err)
		require.Equal(t, []int{8}, x.Shape)
		require.Equal(t, int64(16), x.Size())
		require.NoError(t, x.CheckFinite())
		require.Equal(t, uint16(0x3f07), binary.LittleEndian.Uint16(x.Bytes()[14:]))
		require.NoError(t, x.Discard())
		require.Equal(t, uint16(0x3f07), binary.LittleEndian.Uint16(x.Bytes()[14:]), "readable after Discard")
		_, err = ck.Tensor("model.norm.bias")
		require.EqualError(t, err, "checkpoint "+ck.Name()+` has no tensor "model.norm.bias" (it has 2 tensors)`)
		text, err := ck.ReadFile("tokenizer.json")
		require.NoError(t, err)
		require.Equal(t, "{}", string(text))
		_, err = ck.ReadFile("merges.txt")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, ck.Close())
		require.NoError(t, ck.Close(), "twice")
		_, err = ck.Tensor("model.norm.weight")
		require.EqualError(t, err, "checkpoint "+ck.Name()+" is closed")
		_, err = ck.ContentHash(context.Background())
		require.EqualError(t, err, "checkpoint "+ck.Name()+" is closed")
	})
}

func TestDiscardLargeMapping(t *testing.T) {
	ck, err := Open(dir(t, map[string]string{"config.json": smallConfig, "model.safetensors": weights(t, bf16("w", 1<<16))}))
	require.NoError(t, err)
	defer ck.Close()
	x, err := ck.Tensor("w")
	require.NoError(t, err)
	before := bytes.Clone(x.Bytes())
	require.NoError(t, x.Discard())
	require.Equal(t, before, x.Bytes())
}

func TestOpenSharded(t *testing.T) {
	both(t, map[string]string{
		"config.json":                      smallConfig,
		"model.safetensors.index.json":     index(t, map[string]string{"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}),
		"model-1.safetensors":              weights(t, bf16("a", 2), bf16("c", 4)),
		"model-2.safetensors":              weights(t, bf16("b", 3)),
		"model-3-not-in-index.safetensors": "rubbish",
	}, func(t *testing.T, ck *Checkpoint, err error) {
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, ck.Names())
		x, err := ck.Tensor("b")
		require.NoError(t, err)
		require.Equal(t, "model-2.safetensors", x.File)
		require.Equal(t, []int{3}, x.Shape)
	})
}

func TestNamesAreNormalised(t *testing.T) {
	both(t, map[string]string{
		"config.json": smallConfig,
		"model.safetensors": weights(t, bf16("model.language_model.layers.0.mlp.up_proj.weight", 2), bf16("language_model.model.norm.weight", 2),
			bf16("lm_head.weight", 2), bf16("model.visual.blocks.0.w", 2), bf16("visual.x", 2), bf16("model.mtp.fc.weight", 2),
			bf16("mtp.layers.0.input_layernorm.weight", 2), bf16("model.layers.0.self_attn.rotary_emb.inv_freq", 2)),
	}, func(t *testing.T, ck *Checkpoint, err error) {
		require.NoError(t, err)
		require.Equal(t, []string{"lm_head.weight", "model.layers.0.mlp.up_proj.weight", "model.norm.weight", "mtp.fc.weight", "mtp.layers.0.input_layernorm.weight"}, ck.Names())
		require.Equal(t, []string{"model.layers.0.self_attn.rotary_emb.inv_freq", "model.visual.blocks.0.w", "visual.x"}, ck.Skipped())
		require.Equal(t, 1, ck.Config().MTPLayers, "counted from the tensors")
		x, err := ck.Tensor("model.norm.weight")
		require.NoError(t, err)
		require.Equal(t, "language_model.model.norm.weight", x.Source)
	})
}

// TestOpenRefuses has a bad directory for each way that the files can
// disagree, with the exact error.
func TestOpenRefuses(t *testing.T) {
	good := weights(t, bf16("a", 2))
	shards := map[string]string{"a": "m-1.safetensors", "b": "m-2.safetensors"}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"unknown model": {map[string]string{"config.json": `{"model_type":"mamba"}`}, `config.json: model_type is "mamba"; this model is not known; known are ` + strings.Join(ModelTypes(), ", ")},
		"no weights":    {nil, "neither model.safetensors nor model.safetensors.index.json is there"},
		"empty":         {map[string]string{"model.safetensors": ""}, "model.safetensors: file has 0 bytes; a safetensors file begins with 8 bytes of header length"},
		"truncated":     {map[string]string{"model.safetensors": good[:len(good)-1]}, `model.safetensors: tensor "a" ends at byte 4 of the data, which has 3: the file is truncated or its header wrong`},
		"longer":        {map[string]string{"model.safetensors": good + "x"}, "model.safetensors: tensors end at byte 4 of the data, which has 5"},
		"lying offsets": {map[string]string{"model.safetensors": strings.Replace(good, "[0,4]", "[4,8]", 1)}, `model.safetensors: tensor "a" ends at byte 8 of the data, which has 4: the file is truncated or its header wrong`},
		"two spellings": {map[string]string{"model.safetensors": weights(t, bf16("model.norm.weight", 2), bf16("model.language_model.norm.weight", 2))},
			`tensors "model.language_model.norm.weight" in model.safetensors and "model.norm.weight" in model.safetensors are the same tensor "model.norm.weight"`},
		"bad generation":  {map[string]string{"generation_config.json": "[]"}, "generation_config.json: the file must be one JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
		"generation eos":  {map[string]string{"generation_config.json": `{"eos_token_id":99}`}, "generation_config.json: eos_token_id is 99; it must be an id below vocab_size, which is 32"},
		"index":           {map[string]string{"model.safetensors.index.json": "{}"}, "model.safetensors.index.json: weight_map is missing"},
		"wrong file":      {map[string]string{"model.safetensors.index.json": index(t, shards), "m-1.safetensors": weights(t, bf16("b", 1)), "m-2.safetensors": weights(t, bf16("a", 1))}, `m-1.safetensors holds tensor "b", which model.safetensors.index.json places in m-2.safetensors`},
		"lacks tensor":    {map[string]string{"model.safetensors.index.json": index(t, shards), "m-1.safetensors": weights(t, bf16("a", 1)), "m-2.safetensors": weights(t)}, `m-2.safetensors lacks tensor "b", which model.safetensors.index.json places there`},
		"unlisted tensor": {map[string]string{"model.safetensors.index.json": index(t, shards), "m-1.safetensors": weights(t, bf16("a", 1)), "m-2.safetensors": weights(t, bf16("b", 1), bf16("c", 1))}, `m-2.safetensors holds tensor "c", which model.safetensors.index.json does not list`},
		"bad shard":       {map[string]string{"model.safetensors.index.json": index(t, shards), "m-1.safetensors": good[:20], "m-2.safetensors": good}, "m-1.safetensors: header length is 88, but only 12 bytes follow: the file is truncated or not safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"config.json": smallConfig}
			maps.Copy(files, c.files)
			both(t, files, func(t *testing.T, ck *Checkpoint, err error) {
				require.Nil(t, ck)
				require.Error(t, err)
				text := err.Error()
				require.True(t, strings.HasPrefix(text, "open checkpoint "), text)
				require.True(t, strings.HasSuffix(text, ": "+c.want), "%s\nwant: %s", text, c.want)
			})
		})
	}
}

func TestOpenRefusesPlaces(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "nothing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	d := dir(t, map[string]string{"config.json": smallConfig})
	_, err = Open(filepath.Join(d, "config.json"))
	require.EqualError(t, err, "open checkpoint: "+filepath.Join(d, "config.json")+" is a file; give the directory that holds config.json, or a file *.gguf")
	_, err = Open(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "config.json")
	require.NoError(t, os.Mkdir(filepath.Join(d, "model.safetensors"), 0o755))
	_, err = Open(d)
	require.ErrorContains(t, err, "model.safetensors is not a regular file")
	d = dir(t, map[string]string{"config.json": smallConfig, "model.safetensors.index.json": index(t, map[string]string{"a": "gone.safetensors"})})
	_, err = Open(d)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "gone.safetensors")
	var bad *ConfigError
	_, err = Open(dir(t, map[string]string{"config.json": `{"model_type":"llama"}`}))
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "hidden_size", bad.Key)
}

func TestHashes(t *testing.T) {
	files := map[string]string{"config.json": smallConfig, "model.safetensors": weights(t, bf16("a", 4))}
	hashes := func(change map[string]string) (cheap, full string) {
		all := maps.Clone(files)
		maps.Copy(all, change)
		ck, err := Open(dir(t, all))
		require.NoError(t, err)
		defer ck.Close()
		full, err = ck.ContentHash(context.Background())
		require.NoError(t, err)
		require.Len(t, ck.Hash(), 64)
		require.Len(t, full, 64)
		return ck.Hash(), full
	}
	cheap, full := hashes(nil)
	again, fullAgain := hashes(nil)
	require.Equal(t, cheap, again)
	require.Equal(t, full, fullAgain)

	values := weights(t, Uint16Data("a", BF16, []int{4}, []uint16{1, 2, 3, 4}))
	c, f := hashes(map[string]string{"model.safetensors": values})
	require.Equal(t, cheap, c, "the cheap hash does not see values")
	require.NotEqual(t, full, f)
	for name, change := range map[string]map[string]string{
		"config":     {"config.json": smallConfig + " "},
		"generation": {"generation_config.json": "{}"},
		"name":       {"model.safetensors": weights(t, bf16("b", 4))},
		"shape":      {"model.safetensors": weights(t, bf16("a", 5))},
	} {
		c, f := hashes(change)
		require.NotEqual(t, cheap, c, name)
		require.NotEqual(t, full, f, name)
	}

	ck, err := Open(dir(t, files))
	require.NoError(t, err)
	defer ck.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = ck.ContentHash(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// The bytes of an fs.FS whose ReadFile does not copy are used as they are.
func TestOpenFSDoesNotCopy(t *testing.T) {
	raw := []byte(weights(t, bf16("a", 4)))
	ck, err := OpenFS(shared{"config.json": []byte(smallConfig), "model.safetensors": raw}, "embedded")
	require.NoError(t, err)
	x, err := ck.Tensor("a")
	require.NoError(t, err)
	require.Same(t, &raw[len(raw)-8], &x.Bytes()[0])
}

// shared is a file system that gives its bytes without copying.
type shared map[string][]byte

func (s shared) Open(name string) (fs.File, error) {
	text, ok := s[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fstest.MapFS{name: &fstest.MapFile{Data: text}}.Open(name)
}

func (s shared) ReadFile(name string) ([]byte, error) {
	if text, ok := s[name]; ok {
		return text, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
