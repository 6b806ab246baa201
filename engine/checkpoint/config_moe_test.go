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
