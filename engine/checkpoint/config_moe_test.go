package checkpoint

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConfigRefusesMixtures has bad configs of the families with experts.
func TestConfigRefusesMixtures(t *testing.T) {
	for name, c := range map[string]struct {
		base   obj
		change obj
		want   string
	}{
		"odd latent":          {deepseekJSON(), obj{"kv_lora_rank": 21}, "kv_lora_rank is 21; it and qk_nope_head_dim, which is 12, must be even"},
		"odd rotation":        {deepseekJSON(), obj{"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7; it must be an even number of channels"},
		"half-split latent":   {deepseekJSON(), obj{"rope_interleave": false}, "rope_interleave is false; the rotary pairs of latent attention must be interleaved (true)"},
		"some layers mixed":   {deepseekJSON(), obj{"moe_layer_freq": 2}, "moe_layer_freq is 2; all layers from first_k_dense_replace on must be mixtures (1)"},
		"yarn order":          {deepseekJSON(), yarn(obj{"beta_slow": 33}), "rope_scaling.beta_fast is 32; it must be above beta_slow, which is 33"},
		"yarn option":         {deepseekJSON(), yarn(obj{"truncate": false}), "rope_scaling.truncate is false; this rotary option is not known"},
		"no index":            {glmDSAJSON(), obj{"index_topk": nil}, "index_topk is missing; it must be an integer from 1 to 1073741824"},
		"index without rank":  {glmDSAJSON(), obj{"q_lora_rank": nil}, "q_lora_rank is missing; it must be an integer from 1 to 1048576"},
		"narrow index":        {glmDSAJSON(), obj{"index_head_dim": 6}, "index_head_dim is 6; it must be even and at least qk_rope_head_dim, which is 8"},
		"shares with nobody":  {glmDSAJSON(), obj{"indexer_types": []string{"shared", "full"}}, `indexer_types[0] is "shared"; known are full, shared, and the first must be full`},
		"index types":         {glmDSAJSON(), obj{"indexer_types": []string{"full", "half"}}, `indexer_types[1] is "half"; known are full, shared, and the first must be full`},
		"index pattern":       {glmDSAJSON(), obj{"index_topk_pattern": "FSF"}, "indexer_types is a list of 3; it must have an entry for each of num_hidden_layers = 2 layers"},
		"no experts":          {qwen3MoEJSON(), obj{"num_experts": nil}, "num_experts is missing; it must be an integer from 1 to 65536"},
		"experts twice":       {qwen3MoEJSON(), obj{"num_local_experts": 5}, "num_experts is 6; num_local_experts is 5; the two must agree"},
		"more than there are": {qwen3MoEJSON(), obj{"num_experts_per_tok": 7}, "num_experts_per_tok is 7; it must be at most 6, the experts to choose from"},
		"dense without width": {qwen35MoEJSON(), obj{"decoder_sparse_step": 2}, "intermediate_size is missing; it must be an integer from 1 to 1048576"},
		"no shared":           {qwen35MoEJSON(), obj{"shared_expert_intermediate_size": nil}, "shared_expert_intermediate_size is missing; it must be an integer from 1 to 1048576"},
		"groups":              {glm4MoEJSON(), obj{"n_group": 5}, "n_group is 5; it must divide the 12 experts into groups of at least 2"},
		"groups of one":       {glm4MoEJSON(), obj{"n_group": 12}, "n_group is 12; it must divide the 12 experts into groups of at least 2"},
		"kept groups":         {glm4MoEJSON(), obj{"topk_group": 5}, "topk_group is 5; it must be at most n_group, which is 4"},
		"few in groups":       {glm4MoEJSON(), obj{"topk_group": 1, "num_experts_per_tok": 4}, "num_experts_per_tok is 4; it must be at most 3, the experts to choose from"},
		"scores":              {glm4MoEJSON(), obj{"scoring_func": "softmax"}, `scoring_func is "softmax"; the score of a router must be sigmoid`},
		"method":              {glm4MoEJSON(), obj{"topk_method": "greedy"}, `topk_method is "greedy"; experts must be chosen by noaux_tc`},
		"layer types of mlp":  {glm4MoEJSON(), obj{"mlp_layer_types": []string{"sparse", "moe"}}, `mlp_layer_types[1] is "moe"; known are dense, sparse`},
		"layers of mlp":       {glm4MoEJSON(), obj{"mlp_layer_types": []string{"sparse"}}, "mlp_layer_types is a list of 1; it must have an entry for each of num_hidden_layers = 2 layers"},
	} {
		t.Run(name, func(t *testing.T) {
			maps.Copy(c.base, c.change)
			_, err := parseValue(t, c.base)
			require.EqualError(t, err, "config.json: "+c.want)
		})
	}
}

func qwen4JSON() obj {
	o := qwen35MoEJSON()
	maps.Copy(o, obj{"model_type": "qwen4_exp_text", "architectures": []string{"Qwen4ExpForCausalLM"}, "num_hidden_layers": 4, "output_gate_type": "sigmoid",
		"hidden_size": 64, "hc_count": 3, "hc_lowrank": 20, "ple_layer_ids": []int{3, 1, 3}, "ple_embed_dim": 48, "heads_per_ngram": 4, "ngram_vocab_size_base": 1000,
		"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 32, "indexer_budget": 64, "indexer_compress_ratio": 4,
		"layer_types": []string{"linear_attention", "qwen_sparse_attention", "indexed_attention", "full_attention"}})
	return o
}

// TestConfigOfQwen4 reads what the other families don't have.
func TestConfigOfQwen4(t *testing.T) {
	c, err := parseValue(t, qwen4JSON())
	require.NoError(t, err)
	require.Equal(t, Qwen4Exp, c.Family)
	require.Equal(t, Streams{Count: 3, Rank: 20}, c.Streams)
	require.Equal(t, []LayerKind{LinearAttention, FullAttention, FullAttention, FullAttention}, c.LayerTypes)
	require.Equal(t, Grams{Layers: []int{0, 2}, Size: 3, Heads: 4, Width: 48, Base: 1000, Multiple: 128, Parts: 512, Taps: 4, Seed: 1234}, c.Grams)
	require.Equal(t, 8, c.Grams.Columns())
	require.Equal(t, Index{Heads: 4, Dim: 32, TopK: 64, Ratio: 4, Own: []bool{true, true, true, true}}, c.Index)
	require.Equal(t, Sigmoid, c.GDN.OutputGate)
	require.Equal(t, 32, c.RotaryDim(), "whole heads, where the file does not say otherwise")
	require.Empty(t, c.Unread)
	requireRoundTrip(t, c)

	bare := qwen4JSON()
	for _, key := range []string{"ple_layer_ids", "hc_count", "hc_lowrank", "indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio"} {
		delete(bare, key)
	}
	c, err = parseValue(t, bare)
	require.NoError(t, err)
	require.Equal(t, Streams{Count: 4, Rank: 320}, c.Streams)
	require.Zero(t, c.Grams)
	require.Zero(t, c.Index)
	requireRoundTrip(t, c)
}

// TestConfigRefusesQwen4 has absurd values, each with one error.
func TestConfigRefusesQwen4(t *testing.T) {
	for name, c := range map[string]struct {
		change obj
		want   string
	}{
		"one stream":          {obj{"hc_count": 1}, "hc_count is 1; it must be an integer from 2 to 16"},
		"many streams":        {obj{"hc_count": 1 << 40}, "hc_count is 1099511627776; it must be an integer from 2 to 16"},
		"odd rank":            {obj{"hc_lowrank": 21}, "hc_lowrank is 21; it must be even"},
		"no gate":             {obj{"attn_output_gate": false}, "attn_output_gate is false; attention of this family has an output gate (true)"},
		"dense layers":        {obj{"mlp_only_layers": []int{1}, "intermediate_size": 10}, "mlp_only_layers is [1]; all layers of this family are mixtures"},
		"half an index":       {obj{"indexer_budget": nil}, "indexer_budget is missing; it must be an integer from 1 to 1073741824"},
		"key heads":           {obj{"indexer_kv_heads": 2}, "indexer_kv_heads is 2; the keys of an index are one head (1)"},
		"narrow index":        {obj{"indexer_head_dim": 30}, "indexer_head_dim is 30; it must be even and at least the rotated channels of a head, which are 32"},
		"no whole blocks":     {obj{"indexer_budget": 62}, "indexer_budget is 62; it must be a multiple of indexer_compress_ratio, which is 4"},
		"no ratio":            {obj{"indexer_compress_ratio": 0}, "indexer_compress_ratio is 0; it must be an integer from 1 to 1073741824"},
		"layer 0":             {obj{"ple_layer_ids": []int{0}}, "ple_layer_ids[0] is 0; layers are 1 to num_hidden_layers, which is 4"},
		"a layer too far":     {obj{"ple_layer_ids": []int{1, 5}}, "ple_layer_ids[1] is 5; layers are 1 to num_hidden_layers, which is 4"},
		"layers of text":      {obj{"ple_layer_ids": "all"}, `ple_layer_ids is "all"; it must be a list of layer numbers from 1 on`},
		"long n-grams":        {obj{"ngram_size": 9}, "ngram_size is 9; it must be an integer from 2 to 8"},
		"unigrams":            {obj{"ngram_size": 1}, "ngram_size is 1; it must be an integer from 2 to 8"},
		"many hashes":         {obj{"heads_per_ngram": 33}, "heads_per_ngram is 33; with ngram_size 3 a token has 66 hashes; there may be 64"},
		"uneven embeddings":   {obj{"ple_embed_dim": 50}, "ple_embed_dim is 50; it must be even, and a multiple of the 8 hashes of a token"},
		"a table of 2^34":     {obj{"ngram_vocab_size_base": 1<<31 - 1}, "ngram_vocab_size_base is 2147483647; a table of 8 hashes may have 2147483647 rows"},
		"beyond 31 bits":      {obj{"ngram_vocab_size_base": 1 << 40}, "ngram_vocab_size_base is 1099511627776; it must be an integer from 2 to 2147483647"},
		"negative seed":       {obj{"seed": -1}, "seed is -1; it must be an integer from 0 to 9223372036854775807"},
		"no end of text":      {obj{"eos_token_id": nil}, "eos_token_id is missing; n-grams end at it, so that it must be given"},
		"unknown layers":      {obj{"layer_types": []string{"linear_attention", "kda", "kda", "kda"}}, `layer_types[1] is "kda"; known here are ["full_attention" "linear_attention" "qwen_sparse_attention" "indexed_attention"]`},
		"unknown output gate": {obj{"output_gate_type": "tanh"}, `output_gate_type is "tanh"; known are silu, swish, sigmoid`},
	} {
		t.Run(name, func(t *testing.T) {
			o := qwen4JSON()
			maps.Copy(o, c.change)
			_, err := parseValue(t, o)
			require.EqualError(t, err, "config.json: "+c.want)
		})
	}
}
