package checkpoint

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pooledConfig(t testing.TB, file string) obj {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	c := obj{}
	require.NoError(t, json.Unmarshal(text, &c))
	return c
}

// TestConfigsOfDeepseekV4 reads the publisher's layout and the one that transformers
// saves: of the tiny model of engine/model they say the same.
func TestConfigsOfDeepseekV4(t *testing.T) {
	c, err := parseValue(t, pooledConfig(t, "testdata/configs/deepseek_v4.json"))
	require.NoError(t, err)
	require.Equal(t, DeepseekV4, c.Family)
	require.Equal(t, Streams{Count: 4, Iters: 20, Eps: 1e-6}, c.Streams)
	require.Equal(t, MoE{
		Experts: 256, PerToken: 6, Size: 2048, SharedSize: 2048, Score: SqrtSoftplus, Groups: 1, KeptGroups: 1, Normalize: true, Scale: 1.5, Limit: 10,
		Hash: append([]bool{true, true, true}, make([]bool, 40)...),
	}, c.MoE)
	p := c.Pooled
	require.Equal(t, []int{0, 0, 4, 128, 4}, p.Ratios[:5])
	require.Len(t, p.Ratios, 43, "that of the MTP layer is left out")
	require.Equal(t, []bool{false, false, true, false, true}, p.Overlap[:5])
	require.Equal(t, p.Overlap, c.Index.Own)
	require.Equal(t, Rope{Type: RopeDefault, Theta: 1e4, PartialFactor: 1}, c.Rope)
	require.Equal(t, Rope{Type: RopeYaRN, Theta: 1.6e5, PartialFactor: 1, Factor: 16, OriginalSize: 65536, BetaFast: 32, BetaSlow: 1, MScale: 1, MScaleAll: 1}, p.GroupRope)
	require.Equal(t, 1.0, p.GroupRope.VectorScale())
	requireRoundTrip(t, c)

	saved, err := parseValue(t, pooledConfig(t, "testdata/configs/deepseek_v4_saved.json"))
	require.NoError(t, err)
	tiny, err := parseValue(t, pooledConfig(t, filepath.Join("../model/testdata/deepseek_v4", configFile)))
	require.NoError(t, err)
	saved.Unread, tiny.Unread = nil, nil
	require.Equal(t, tiny, saved)
	requireRoundTrip(t, saved)
}

func TestConfigRefusesDeepseekV4(t *testing.T) {
	for name, c := range map[string]struct {
		change obj
		want   string
	}{
		"another family's prefix": {obj{"model_type": "deepseek_v"}, `model_type is "deepseek_v"; this model is not known; known are ` + strings.Join(ModelTypes(), ", ")},
		"its heads":               {obj{"num_key_value_heads": 2}, "num_key_value_heads is 2; all heads share one key (1)"},
		"rotates more than all":   {obj{"qk_rope_head_dim": 514}, "qk_rope_head_dim is 514; it must be even and at most head_dim, which is 512"},
		"odd rotation":            {obj{"qk_rope_head_dim": 63}, "qk_rope_head_dim is 63; it must be even and at most head_dim, which is 512"},
		"groups of outputs":       {obj{"o_groups": 7}, "o_groups is 7; it must divide num_attention_heads, which is 64"},
		"no window":               {obj{"sliding_window": nil}, "sliding_window is missing; it must be an integer from 1 to 1073741824"},
		"no ratios":               {obj{"compress_ratios": nil}, "compress_ratios is missing; it must be a list with an entry for each layer"},
		"few ratios":              {obj{"compress_ratios": []int{0, 4}}, "compress_ratios is a list of 2; it must have an entry for each of num_hidden_layers = 43 layers"},
		"unknown ratio":           {obj{"compress_ratios": slices.Repeat([]int{8}, 43)}, "compress_ratios[0] is 8; known are 0, 4, 128"},
		"rates":                   {obj{"compress_rates": obj{"compressed_sparse_attention": 1}}, "compress_rates.compressed_sparse_attention is 1; it must be an integer from 2 to 4096"},
		"other rates":             {obj{"compress_rates": obj{"sliding_attention": 1}}, `compress_rates.sliding_attention is missing; known are ["compressed_sparse_attention" "heavily_compressed_attention"]`},
		"layer types":             {obj{"layer_types": slices.Repeat([]string{"full_attention"}, 43)}, `layer_types[0] is "full_attention"; known here are ["sliding_attention" "compressed_sparse_attention" "heavily_compressed_attention"]`},
		"streams":                 {obj{"hc_mult": 9}, "hc_mult is 9; it must be an integer from 1 to 8"},
		"balance":                 {obj{"hc_sinkhorn_iters": 0}, "hc_sinkhorn_iters is 0; it must be an integer from 1 to 1000"},
		"scores":                  {obj{"scoring_func": "softmax"}, `scoring_func is "softmax"; known are sqrtsoftplus, sigmoid`},
		"shared experts":          {obj{"n_shared_experts": 2}, "n_shared_experts is 2; one expert is for all tokens (1)"},
		"types of experts":        {obj{"mlp_layer_types": slices.Repeat([]string{"dense"}, 43)}, `mlp_layer_types[0] is "dense"; known are hash_moe, moe`},
		"narrow index":            {obj{"index_head_dim": 62}, "index_head_dim is 62; it must be even and at least the 64 channels that are rotated"},
		"half of the ropes":       {obj{"rope_scaling": nil, "rope_parameters": obj{"main": obj{}}}, "rope_parameters.main is missing; main and compress must both be given, or neither"},
		"rotary option":           {obj{"rope_scaling": obj{"type": "yarn", "factor": 2, "original_max_position_embeddings": 8, "spin": 1}}, "rope_scaling.spin is missing; this rotary option is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			base := pooledConfig(t, "testdata/configs/deepseek_v4.json")
			maps.Copy(base, c.change)
			_, err := parseValue(t, base)
			require.EqualError(t, err, "config.json: "+c.want)
		})
	}
}

// TestConfigsOfDeepseekV41 reads which layers share groups, and refuses what does not
// fit. The model type is told from deepseek_v4 by the whole string.
func TestConfigsOfDeepseekV41(t *testing.T) {
	file := filepath.Join("../model/testdata/deepseek_v41", configFile)
	c, err := parseValue(t, pooledConfig(t, file))
	require.NoError(t, err)
	require.Equal(t, DeepseekV41, c.Family)
	require.Equal(t, []int{0, 2, 2, 1, 1, 1}, c.Pooled.Ratios)
	require.Equal(t, &PooledShare{Source: []int{-1, 1, 1, 3, 3, 3}, Candidates: 3, Blocks: 6, BlockSize: 4}, c.Pooled.Share)
	require.Equal(t, []bool{false, true, false, true, true, false}, c.Index.Own)
	require.Equal(t, []int{1, 4}, c.Grams.Layers)
	require.Equal(t, 84, c.Grams.Width)
	require.Equal(t, Spark{Stages: 2, Block: 4, Mask: 131, Taps: []int{2, 5}, Rank: 6, Experts: 7, PerToken: 2}, c.Spark)
	requireRoundTrip(t, c)
	nested, err := parseValue(t, obj{"model_type": "deepseek_v41", "architectures": []string{"DeepseekV41ForCausalLM"}, "text_config": pooledConfig(t, file)})
	require.NoError(t, err)
	require.Equal(t, c.Pooled, nested.Pooled)
	for name, x := range map[string]struct {
		change obj
		want   string
	}{
		"few ratios":       {obj{"compress_ratios": []int{0}}, "compress_ratios is a list of 1; it must have an entry for each of num_hidden_layers = 6 layers"},
		"no source":        {obj{"kv_source_layer_ids": []int{3}}, "compress_ratios[1] is 2; a layer with groups must stand at or behind one of kv_source_layer_ids of the same ratio"},
		"another ratio":    {obj{"compress_ratios": []int{0, 2, 4, 1, 1, 1}}, "compress_ratios[2] is 4; a layer with groups must stand at or behind one of kv_source_layer_ids of the same ratio"},
		"source of none":   {obj{"kv_source_layer_ids": []int{0, 1, 3}}, "compress_ratios[0] is 0; a layer of kv_source_layer_ids or index_source_layer_ids must have groups"},
		"source, no index": {obj{"index_source_layer_ids": []int{1, 4}}, "index_source_layer_ids is [1 4]; it must have layer 3, which is one of kv_source_layer_ids"},
		"candidates":       {obj{"candidate_source_layer_id": 2}, "candidate_source_layer_id is 2; it must be one of index_source_layer_ids, or -1"},
		"huge groups":      {obj{"compress_ratios": []int{0, 5000, 2, 1, 1, 1}}, "compress_ratios[1] is 5000; it must be from 0 to 4096"},
		"n-gram layers":    {obj{"engram_layer_ids": []int{1, 14}}, "engram_layer_ids is [1 14]; layers are 0 to 5, each once and in ascending order"},
		"n-gram tables":    {obj{"engram_num_embeddings": []int{5}}, "engram_num_embeddings is a list of 1; it must have an entry for each of the 2 layers of engram_layer_ids"},
		"huge tables":      {obj{"engram_num_embeddings": []int{5, 1 << 40}}, "engram_num_embeddings is [5 1099511627776]; a table has 1 to 2147483647 rows"},
		"many hashes":      {obj{"engram_n_heads": 30}, "engram_n_heads is 30; with engram_max_ngram_size 4 a token has 90 hashes; there may be 64"},
		"odd embeddings":   {obj{"engram_n_heads": 1, "engram_head_dim": 7}, "engram_head_dim is 7; the embeddings of 3 hashes together must be even and at most 1048576"},
		"pad of n-grams":   {obj{"engram_pad_token_id": 138}, "engram_pad_token_id is 138; it must be an integer from 0 to 137"},
		"drafting experts": {obj{"dspark_num_experts_per_tok": 8}, "dspark_num_experts_per_tok is 8; it can't be above dspark_n_routed_experts, which is 7"},
		"mask":             {obj{"dspark_noise_token_id": 138}, "dspark_noise_token_id is 138; it must be an integer from 0 to 137"},
		"no taps":          {obj{"dspark_target_layer_ids": []int{}}, "dspark_target_layer_ids is []; it must list layers in ascending order"},
		"taps beyond":      {obj{"dspark_target_layer_ids": []int{6}}, "dspark_target_layer_ids[0] is 6; layers are 0 to 5"},
		"taps of n-grams":  {obj{"dspark_target_layer_ids": []int{4}}, "dspark_target_layer_ids[0] is 4; a layer of engram_layer_ids can't be read"},
		"temperature":      {obj{"gate_temp": 2}, "gate_temp is 2; logits of routers must be taken as they are (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			base := pooledConfig(t, file)
			maps.Copy(base, x.change)
			_, err := parseValue(t, base)
			require.EqualError(t, err, "config.json: "+x.want)
		})
	}
}
