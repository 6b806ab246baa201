package experiments

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

const toyModel = "../engine/model/testdata/qwen3"

// The memory that an inspection counts is what a backend holds when the run is laid
// out for real.
func TestInspectMemory(t *testing.T) {
	for _, c := range []InspectOptions{
		{Model: registry.Embedded, Context: 700, Sequences: 3, Threads: 2},
		{Model: toyModel, Threads: 1, Draft: "none"},
		{Model: "../engine/model/testdata/glm_moe_dsa", Threads: 1},            // experts, latent attention, indexes
		{Model: "../engine/model/testdata/qwen4_exp", Threads: 2},              // streams, n-gram tables, an index of blocks
		{Model: "../engine/model/testdata/deepseek_v4", Threads: 2},            // streams, windows, pooled keys
		{Model: "../engine/model/testdata/deepseek_v41_published", Threads: 2}, // its own DSpark module, FP8 and FP4
		{Model: "random:embedded", Context: 300, Threads: 3},
	} {
		in, err := Inspect(t.Context(), c)
		require.NoError(t, err)
		require.Empty(t, in.Problems)
		require.True(t, in.Runs)
		mem := in.Memory
		require.Equal(t, strings.Contains(c.Model, "qwen4_exp") || strings.Contains(c.Model, "deepseek_v41"), mem.LeftInFiles > 0, c.Model)

		be, err := cpu.New(cpu.Options{Threads: c.Threads})
		require.NoError(t, err)
		e, err := registry.Open(c.Model)
		require.NoError(t, err)
		m, err := model.Load(be, e.Source, model.Options{MaxTokens: mem.Context, MTP: true})
		require.NoError(t, err)
		drafters := map[string]engine.Drafter{}
		if mem.Draft != "none" {
			st, err := draft.New(mem.Draft)
			require.NoError(t, err)
			drafters[mem.Draft], err = st.Provision(draft.Env{Backend: be, Model: m, Vocab: e.Vocab()})
			require.NoError(t, err)
		}
		rule, err := verify.New("greedy")
		require.NoError(t, err)
		eng, err := engine.New(m, engine.Config{MaxTokens: mem.Context, MaxSequences: mem.Sequences, Vocab: e.Vocab()}, drafters, rule, nil, engine.Listener{})
		require.NoError(t, err)
		held := be.Memory()
		require.Equal(t, []int64{held[kernels.Weights], held[kernels.KV], held[kernels.State], held[kernels.Activations], held[kernels.Tables], held.Total()},
			[]int64{mem.Weights, mem.KV, mem.State, mem.Activations, mem.Tables, mem.Total}, c.Model)
		require.NoError(t, eng.Close())
		require.NoError(t, be.Close())
		require.NoError(t, e.Close())
	}
}

// rewritten is the toy model with its tensors changed.
func rewritten(t *testing.T, change func([]checkpoint.Data) []checkpoint.Data) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(toyModel)))
	raw, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	list, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	var data []checkpoint.Data
	for _, x := range list {
		data = append(data, checkpoint.Data{Name: x.Name, DType: x.DType, Shape: x.Shape, Bytes: x.Bytes()})
	}
	var out bytes.Buffer
	require.NoError(t, checkpoint.WriteSafetensors(&out, change(data), nil))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), out.Bytes(), 0o644))
	return dir
}

// An inspection goes on past what is wrong, and names all of it.
func TestInspectNames(t *testing.T) {
	const up, down = "model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.down_proj.weight"
	dir := rewritten(t, func(list []checkpoint.Data) []checkpoint.Data {
		list = slices.DeleteFunc(list, func(d checkpoint.Data) bool { return d.Name == up })
		for i := range list {
			switch list[i].Name {
			case down:
				list[i].Shape = []int{list[i].Shape[1], list[i].Shape[0]}
			case "model.norm.weight":
				list[i].Bytes = slices.Clone(list[i].Bytes)
				list[i].Bytes[1], list[i].Bytes[0] = 0x7f, 0xc0
			}
		}
		return append(list, checkpoint.Float32Data("model.extra.weight", []int{2}, []float32{1, 2}), checkpoint.Float32Data("model.visual.x", []int{2}, []float32{1, 2}))
	})
	in, err := Inspect(t.Context(), InspectOptions{Model: dir, Values: true})
	require.NoError(t, err)
	require.False(t, in.Runs)
	require.Equal(t, []string{up}, in.Missing)
	require.Equal(t, []string{"model.extra.weight"}, in.Unused)
	require.Equal(t, []string{"model.visual.x"}, in.LeftOut)
	require.Len(t, in.Problems, 2)
	require.Contains(t, in.Problems[0], down)
	require.Contains(t, in.Problems[1], "element 0 (index [0]) is NaN")
	require.NotNil(t, in.Memory)
	require.Contains(t, in.Parts, InspectPart{"left out", 1, 2, 8})
}

// What the engine does not run is described from its headers.
func TestInspectUnknown(t *testing.T) {
	dir := rewritten(t, func(list []checkpoint.Data) []checkpoint.Data { return list })
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type":"mamba","architectures":["MambaForCausalLM"]}`), 0o644))
	in, err := Inspect(t.Context(), InspectOptions{Model: dir})
	require.NoError(t, err)
	require.False(t, in.Runs)
	require.Equal(t, []string{"mamba", "MambaForCausalLM"}, []string{in.ModelType, in.Architecture})
	require.Nil(t, in.Config)
	require.Nil(t, in.Memory)
	require.Positive(t, in.Parameters)
	require.Len(t, in.Problems, 1)
	require.Contains(t, in.Problems[0], `model_type is "mamba"`)

	require.NoError(t, os.Rename(filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "a.safetensors")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{"x":"a.safetensors","y":"b.safetensors"}}`), 0o644))
	in, err = Inspect(t.Context(), InspectOptions{Model: dir})
	require.NoError(t, err)
	require.Equal(t, []string{"b.safetensors"}, in.Missing)

	_, err = Inspect(t.Context(), InspectOptions{Model: filepath.Join(dir, "nothing")})
	require.ErrorContains(t, err, "no such file or directory")
}
