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

type obj = map[string]any

func llamaJSON() obj {
	return obj{"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
		"max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "bos_token_id": 1, "eos_token_id": 2}
}

func qwen3JSON() obj {
	o := llamaJSON()
	maps.Copy(o, obj{"model_type": "qwen3", "architectures": []string{"Qwen3ForCausalLM"}, "head_dim": 32})
	return o
}

func qwen35JSON() obj {
	o := qwen3JSON()
	maps.Copy(o, obj{"model_type": "qwen3_5_text", "architectures": []string{"Qwen3_5ForCausalLM"}, "num_hidden_layers": 8,
		"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 8,
		"linear_conv_kernel_dim": 4, "mtp_num_hidden_layers": 1})
	return o
}

func qwen3MoEJSON() obj {
	o := qwen3JSON()
	maps.Copy(o, obj{"model_type": "qwen3_moe", "architectures": []string{"Qwen3MoeForCausalLM"}, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24})
	return o
}

func qwen35MoEJSON() obj {
	o := qwen35JSON()
	maps.Copy(o, obj{"model_type": "qwen3_5_moe_text", "architectures": []string{"Qwen3_5MoeForCausalLM"}, "num_experts": 6, "num_experts_per_tok": 2,
		"moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "intermediate_size": nil})
	return o
}

func glm4MoEJSON() obj {
	o := llamaJSON()
	maps.Copy(o, obj{"model_type": "glm4_moe", "architectures": []string{"Glm4MoeForCausalLM"}, "head_dim": 20, "attention_bias": true, "n_routed_experts": 12,
		"num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "n_shared_experts": 2})
	return o
}

func deepseekJSON() obj {
	o := glm4MoEJSON()
	maps.Copy(o, obj{"model_type": "deepseek_v3", "architectures": []string{"DeepseekV3ForCausalLM"}, "head_dim": nil, "attention_bias": false, "q_lora_rank": 24,
		"kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10})
	return o
}

func glmDSAJSON() obj {
	o := deepseekJSON()
	maps.Copy(o, obj{"model_type": "glm_moe_dsa", "architectures": []string{"GlmMoeDsaForCausalLM"}, "index_topk": 24, "index_n_heads": 6, "index_head_dim": 16})
	return o
}

func yarn(change obj) obj {
	o := obj{"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
	maps.Copy(o, change)
	return obj{"rope_scaling": o}
}

func parseValue(t testing.TB, v any) (Config, error) {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return ParseConfig(text)
}

// TestConfigsOfTransformers parses what the transformers library saves, and
// writes and reads it again.
func TestConfigsOfTransformers(t *testing.T) {
	hybrid := slices.Repeat([]LayerKind{LinearAttention, LinearAttention, LinearAttention, FullAttention}, 16)
	qwen35 := Config{
		ModelType: "qwen3_5_text", Architecture: "Qwen3_5ForCausalLM", Family: Qwen3_5,
		HiddenSize: 5120, IntermediateSize: 17408, NumLayers: 64, NumHeads: 24, NumKVHeads: 4, HeadDim: 256,
		VocabSize: 248320, MaxPositions: 262144, RMSEps: 1e-6, AttnOutputGate: true, LayerTypes: hybrid,
		Rope: Rope{Type: RopeDefault, Theta: 1e7, PartialFactor: 0.25},
		GDN:  GDN{NumKHeads: 16, NumVHeads: 48, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: SiLU},
		BOS:  -1, EOS: []int32{248044},
	}
	nested := qwen35
	nested.ModelType, nested.Architecture = "qwen3_5", "Qwen3_5ForConditionalGeneration"
	for name, want := range map[string]Config{
		"llama3": {
			ModelType: "llama", Architecture: "LlamaForCausalLM", Family: Llama,
			HiddenSize: 2048, IntermediateSize: 8192, NumLayers: 16, NumHeads: 32, NumKVHeads: 8, HeadDim: 64,
			VocabSize: 128256, MaxPositions: 131072, RMSEps: 1e-5, TieEmbeddings: true,
			LayerTypes: slices.Repeat([]LayerKind{FullAttention}, 16),
			Rope:       Rope{Type: RopeLlama3, Theta: 5e5, PartialFactor: 1, Factor: 32, LowFreq: 1, HighFreq: 4, OriginalSize: 8192},
			BOS:        128000, EOS: []int32{128001, 128008, 128009},
		},
		"qwen3": {
			ModelType: "qwen3", Architecture: "Qwen3ForCausalLM", Family: Qwen3,
			HiddenSize: 1024, IntermediateSize: 3072, NumLayers: 28, NumHeads: 16, NumKVHeads: 8, HeadDim: 128,
			VocabSize: 151936, MaxPositions: 40960, RMSEps: 1e-6, TieEmbeddings: true,
			LayerTypes: slices.Repeat([]LayerKind{FullAttention}, 28),
			Rope:       Rope{Type: RopeDefault, Theta: 1e6, PartialFactor: 1},
			BOS:        151643, EOS: []int32{151645},
		},
		"qwen35_text": qwen35,
		"qwen35":      nested,
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata/configs", name+".json"))
			require.NoError(t, err)
			c, err := ParseConfig(text)
			require.NoError(t, err)
			require.Equal(t, want, c)
			requireRoundTrip(t, c)
		})
	}
}

func requireRoundTrip(t testing.TB, c Config) {
	t.Helper()
	text, err := c.JSON()
	require.NoError(t, err)
	back, err := ParseConfig(text)
	require.NoError(t, err, "%s", text)
	c.Unread = nil
	require.Equal(t, c, back)
}

func TestConfigLayouts(t *testing.T) {
	for name, c := range map[string]struct {
		base   obj
		change obj
		want   func(*Config)
	}{
		"plain":               {llamaJSON(), obj{}, func(*Config) {}},
		"kv heads absent":     {llamaJSON(), obj{"num_key_value_heads": nil}, func(c *Config) { c.NumKVHeads = 4 }},
		"head dim":            {llamaJSON(), obj{"head_dim": 32}, func(c *Config) { c.HeadDim = 32 }},
		"theta absent":        {llamaJSON(), obj{"rope_theta": nil}, func(c *Config) { c.Rope.Theta = 10000 }},
		"rope parameters":     {llamaJSON(), obj{"rope_theta": nil, "rope_parameters": obj{"rope_type": "default", "rope_theta": 7e4}}, func(c *Config) { c.Rope.Theta = 7e4 }},
		"same theta twice":    {llamaJSON(), obj{"rope_parameters": obj{"rope_theta": 500000}}, func(*Config) {}},
		"scaling null":        {llamaJSON(), obj{"rope_scaling": nil}, func(*Config) {}},
		"linear":              {llamaJSON(), obj{"rope_scaling": obj{"type": "linear", "factor": 2}}, func(c *Config) { c.Rope.Type, c.Rope.Factor = RopeLinear, 2 }},
		"both scalings agree": {llamaJSON(), obj{"rope_scaling": obj{"type": "linear", "factor": 2}, "rope_parameters": obj{"type": "linear", "factor": 2.0}}, func(c *Config) { c.Rope.Type, c.Rope.Factor = RopeLinear, 2 }},
		"llama3": {llamaJSON(), obj{"rope_scaling": obj{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
			func(c *Config) {
				c.Rope = Rope{Type: RopeLlama3, Theta: 5e5, PartialFactor: 1, Factor: 8, LowFreq: 1, HighFreq: 4, OriginalSize: 8192}
			}},
		"tied":                   {llamaJSON(), obj{"tie_word_embeddings": true}, func(c *Config) { c.TieEmbeddings = true }},
		"no architectures":       {llamaJSON(), obj{"architectures": nil}, func(*Config) {}},
		"eos list":               {llamaJSON(), obj{"eos_token_id": []int{5, 6, 5}}, func(c *Config) { c.EOS = []int32{5, 6} }},
		"no ids":                 {llamaJSON(), obj{"eos_token_id": nil, "bos_token_id": nil}, func(c *Config) { c.EOS, c.BOS = nil, -1 }},
		"features off":           {llamaJSON(), obj{"attention_bias": false, "mlp_bias": false, "sliding_window": nil, "num_experts": 0, "quantization_config": nil, "hidden_act": "silu"}, func(*Config) {}},
		"harmless":               {llamaJSON(), obj{"torch_dtype": "bfloat16", "use_cache": true, "_name_or_path": "x"}, func(*Config) {}},
		"unread":                 {llamaJSON(), obj{"zebra": 1, "apple": 2}, func(c *Config) { c.Unread = []string{"apple", "zebra"} }},
		"qwen3 window off":       {qwen3JSON(), obj{"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 2}, func(*Config) {}},
		"qwen3.5 interval":       {qwen35JSON(), obj{"full_attention_interval": 2}, func(c *Config) { c.LayerTypes = slices.Repeat([]LayerKind{LinearAttention, FullAttention}, 4) }},
		"qwen3.5 partial":        {qwen35JSON(), obj{"partial_rotary_factor": 0.5}, func(c *Config) { c.Rope.PartialFactor = 0.5 }},
		"qwen3.5 mrope":          {qwen35JSON(), obj{"rope_scaling": obj{"type": "mrope", "mrope_section": []int{1, 1, 2}, "mrope_interleaved": true}}, func(*Config) {}},
		"qwen3.5 gate":           {qwen35JSON(), obj{"output_gate_type": "sigmoid"}, func(c *Config) { c.GDN.OutputGate = Sigmoid }},
		"qwen3.5 swish":          {qwen35JSON(), obj{"output_gate_type": "swish", "mamba_ssm_dtype": "float32"}, func(*Config) {}},
		"qwen3.5 no output gate": {qwen35JSON(), obj{"attn_output_gate": false}, func(c *Config) { c.AttnOutputGate = false }},
		"qwen3.5 full only": {qwen35JSON(), obj{"layer_types": slices.Repeat([]LayerKind{FullAttention}, 8)}, func(c *Config) {
			c.GDN = GDN{}
			c.LayerTypes = slices.Repeat([]LayerKind{FullAttention}, 8)
		}},
		"experts":               {qwen3MoEJSON(), obj{}, func(*Config) {}},
		"experts as in newer":   {qwen3MoEJSON(), obj{"num_experts": nil, "num_local_experts": 6}, func(*Config) {}},
		"experts normalised":    {qwen3MoEJSON(), obj{"norm_topk_prob": true}, func(c *Config) { c.MoE.Normalize = true }},
		"experts every second":  {qwen3MoEJSON(), obj{"decoder_sparse_step": 2}, func(c *Config) { c.Sparse = []bool{false, true} }},
		"experts not in some":   {qwen3MoEJSON(), obj{"mlp_only_layers": []int{1}}, func(c *Config) { c.Sparse = []bool{true, false} }},
		"experts in no layer":   {qwen3MoEJSON(), obj{"mlp_only_layers": []int{0, 1}}, func(c *Config) { c.Sparse = []bool{false, false} }},
		"experts and shared":    {qwen35MoEJSON(), obj{}, func(*Config) {}},
		"experts of qwen3.5":    {qwen35MoEJSON(), obj{"norm_topk_prob": false, "num_experts_per_tok": 6}, func(c *Config) { c.MoE.Normalize, c.MoE.PerToken = false, 6 }},
		"experts in groups":     {glm4MoEJSON(), obj{"topk_group": 3, "routed_scaling_factor": 2.5}, func(c *Config) { c.MoE.KeptGroups, c.MoE.Scale = 3, 2.5 }},
		"experts without group": {glm4MoEJSON(), obj{"n_group": nil, "topk_group": nil}, func(c *Config) { c.MoE.Groups, c.MoE.KeptGroups = 1, 1 }},
		"experts by layer":      {glm4MoEJSON(), obj{"mlp_layer_types": []string{"sparse", "dense"}}, func(c *Config) { c.Sparse = []bool{true, false} }},
		"latent":                {deepseekJSON(), obj{"rope_interleave": true}, func(*Config) {}},
		"latent without rank":   {deepseekJSON(), obj{"q_lora_rank": nil}, func(c *Config) { c.MLA.QRank = 0 }},
		"yarn": {deepseekJSON(), yarn(nil), func(c *Config) {
			c.Rope = Rope{Type: RopeYaRN, Theta: 5e5, PartialFactor: 1, Factor: 40, OriginalSize: 4096, BetaFast: 32, BetaSlow: 1, MScale: 1, MScaleAll: 1}
		}},
		"yarn of few words": {deepseekJSON(), yarn(obj{"beta_fast": nil, "beta_slow": nil, "mscale": nil, "mscale_all_dim": nil}), func(c *Config) {
			c.Rope = Rope{Type: RopeYaRN, Theta: 5e5, PartialFactor: 1, Factor: 40, OriginalSize: 4096, BetaFast: 32, BetaSlow: 1}
		}},
		"index":                {glmDSAJSON(), obj{}, func(*Config) {}},
		"index taken over":     {glmDSAJSON(), obj{"indexer_types": []string{"full", "shared"}}, func(c *Config) { c.Index.Own[1] = false }},
		"index by letters":     {glmDSAJSON(), obj{"index_topk_pattern": "FS"}, func(c *Config) { c.Index.Own[1] = false }},
		"index every so often": {glmDSAJSON(), obj{"index_topk_freq": 4, "index_skip_topk_offset": 1}, func(c *Config) { c.Index.Own[1] = false }},
		"glm without biases":   {glm4MoEJSON(), obj{"attention_bias": false, "use_qk_norm": true}, func(c *Config) { c.QKVBias, c.QKNorm = false, true }},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := parseValue(t, c.base)
			require.NoError(t, err)
			require.Empty(t, want.Unread)
			c.want(&want)
			maps.Copy(c.base, c.change)
			got, err := parseValue(t, c.base)
			require.NoError(t, err)
			require.Equal(t, want, got)
			requireRoundTrip(t, got)
			if c.base["model_type"] != "qwen3_5_text" {
				return
			}
			// The same under text_config, as multimodal wrappers have it.
			wrapped, err := parseValue(t, obj{"model_type": "qwen3_5", "text_config": c.base, "vision_config": obj{"depth": 1}})
			require.NoError(t, err)
			want.ModelType, want.Architecture = "qwen3_5", "Qwen3_5ForConditionalGeneration"
			require.Equal(t, want, wrapped)
		})
	}
}

func TestConfigDefaultsOfQwen35(t *testing.T) {
	c, err := parseValue(t, qwen35JSON())
	require.NoError(t, err)
	require.Equal(t, 0.25, c.Rope.PartialFactor)
	require.Equal(t, 8, c.RotaryDim())
	require.True(t, c.AttnOutputGate)
	require.Equal(t, 1, c.MTPLayers)
	require.Equal(t, []LayerKind{LinearAttention, LinearAttention, LinearAttention, FullAttention}, c.LayerTypes[:4])
	require.Equal(t, 32, c.GDN.KeySize())
	require.Equal(t, 32, c.GDN.ValueSize())
	require.Equal(t, 96, c.GDN.ConvSize())
}

// The outer config of a multimodal wrapper decides about tying.
func TestConfigTyingOfWrapper(t *testing.T) {
	for _, tie := range []bool{true, false} {
		inner := qwen35JSON()
		inner["tie_word_embeddings"] = !tie
		c, err := parseValue(t, obj{"model_type": "qwen3_5", "tie_word_embeddings": tie, "text_config": inner})
		require.NoError(t, err)
		require.Equal(t, tie, c.TieEmbeddings)
	}
}

// TestConfigRefuses has one bad config for each rule, with the exact error.
func TestConfigRefuses(t *testing.T) {
	names := strings.Join(ModelTypes(), ", ")
	known := "known are " + names
	for name, c := range map[string]struct {
		base   obj
		change obj
		want   string
	}{
		"no model type":      {llamaJSON(), obj{"model_type": nil}, "model_type is missing; it must be one of " + names},
		"unknown model type": {llamaJSON(), obj{"model_type": "qwen3_"}, `model_type is "qwen3_"; this model is not known; ` + known},
		"model type number":  {llamaJSON(), obj{"model_type": 3}, "model_type is 3; it must be a string"},
		"other architecture": {llamaJSON(), obj{"architectures": []string{"LlamaForSequenceClassification"}}, `architectures[0] is "LlamaForSequenceClassification"; this architecture is not known; known for model_type "llama" are LlamaForCausalLM`},
		"inner model type":   {obj{"model_type": "qwen3_5"}, obj{"text_config": obj{"model_type": "qwen4_exp_text"}}, `text_config.model_type is "qwen4_exp_text"; it must go with model_type "qwen3_5"; ` + known},
		"text config":        {obj{"model_type": "qwen3_5"}, obj{"text_config": 3}, "text_config is 3; it must be an object"},
		"missing inside":     {obj{"model_type": "qwen3_5"}, obj{"text_config": obj{}}, "text_config.hidden_size is missing; it must be an integer from 1 to 1048576"},
		"missing":            {llamaJSON(), obj{"vocab_size": nil}, "vocab_size is missing; it must be an integer from 1 to 1048576"},
		"zero":               {llamaJSON(), obj{"hidden_size": 0}, "hidden_size is 0; it must be an integer from 1 to 1048576"},
		"negative":           {llamaJSON(), obj{"num_hidden_layers": -2}, "num_hidden_layers is -2; it must be an integer from 1 to 4096"},
		"fraction":           {llamaJSON(), obj{"intermediate_size": 1.5}, "intermediate_size is 1.5; it must be an integer from 1 to 1048576"},
		"text":               {llamaJSON(), obj{"num_attention_heads": "4"}, `num_attention_heads is "4"; it must be an integer from 1 to 4096`},
		"vocab":              {llamaJSON(), obj{"vocab_size": 1<<20 + 1}, "vocab_size is 1048577; it must be an integer from 1 to 1048576"},
		"positions":          {llamaJSON(), obj{"max_position_embeddings": 1 << 31}, "max_position_embeddings is 2147483648; it must be an integer from 1 to 1073741824"},
		"kv heads":           {llamaJSON(), obj{"num_key_value_heads": 3}, "num_key_value_heads is 3; it must divide num_attention_heads, which is 4"},
		"heads":              {llamaJSON(), obj{"num_attention_heads": 6}, "num_attention_heads is 6; it must divide hidden_size, which is 64, as head_dim is not given"},
		"odd head":           {llamaJSON(), obj{"head_dim": 15}, "head_dim is 15; the rotated part, 1 of it, must be an even number of channels"},
		"eps 0":              {llamaJSON(), obj{"rms_norm_eps": 0}, "rms_norm_eps is 0; it must be a number above 0, at most 1"},
		"eps text":           {llamaJSON(), obj{"rms_norm_eps": "1e-5"}, `rms_norm_eps is "1e-5"; it must be a number above 0, at most 1`},
		"tie":                {llamaJSON(), obj{"tie_word_embeddings": "yes"}, `tie_word_embeddings is "yes"; it must be true or false`},
		"eos beyond":         {llamaJSON(), obj{"eos_token_id": []int{2, 100}}, "eos_token_id is 100; it must be an id below vocab_size, which is 100"},
		"eos type":           {llamaJSON(), obj{"eos_token_id": "none"}, `eos_token_id is "none"; it must be a token id or a list of token ids`},
		"bos beyond":         {llamaJSON(), obj{"bos_token_id": 100}, "bos_token_id is 100; it must be an id below vocab_size, which is 100"},
		"attention bias":     {llamaJSON(), obj{"attention_bias": true}, "attention_bias is true; biases in attention are not supported (false would be right)"},
		"mlp bias":           {llamaJSON(), obj{"mlp_bias": true}, "mlp_bias is true; biases in the MLP are not supported (false would be right)"},
		"activation":         {llamaJSON(), obj{"hidden_act": "gelu"}, `hidden_act is "gelu"; the MLP must be SwiGLU (silu) ("silu" would be right)`},
		"window":             {llamaJSON(), obj{"sliding_window": 4096}, "sliding_window is 4096; sliding-window attention is not supported (null or use_sliding_window false would be right)"},
		"window on":          {qwen3JSON(), obj{"use_sliding_window": true, "sliding_window": 4096}, "use_sliding_window is true; sliding-window attention is not supported (false would be right)"},
		"experts":            {llamaJSON(), obj{"num_local_experts": 8}, "num_local_experts is 8; mixture-of-experts models are not supported (0 would be right)"},
		"quantised":          {llamaJSON(), obj{"quantization_config": obj{"quant_method": "gptq"}}, `quantization_config.quant_method is "gptq"; weights quantised so are not supported; known are fp8, fbgemm_fp8, mxfp4, nvfp4, modelopt, compressed-tensors, and BF16 checkpoints`},
		"block size":         {llamaJSON(), obj{"quantization_config": obj{"quant_method": "fp8", "weight_block_size": []int{128}}}, "quantization_config.weight_block_size is [128]; it must be two positive numbers"},
		"quantised outside":  {obj{"model_type": "qwen3_5"}, obj{"text_config": qwen35JSON(), "quantization_config": obj{"a": 1}}, `quantization_config.quant_method is missing; weights quantised so are not supported; known are fp8, fbgemm_fp8, mxfp4, nvfp4, modelopt, compressed-tensors, and BF16 checkpoints`},
		"softcap":            {llamaJSON(), obj{"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30; capped logits are not supported (0 would be right)"},
		"multiplier":         {llamaJSON(), obj{"attention_multiplier": 0.5}, "attention_multiplier is 0.5; scores must be scaled by head_dim^-0.5 (null would be right)"},
		"layer kinds":        {qwen3JSON(), obj{"layer_types": []string{"full_attention", "sliding_attention"}}, `layer_types[1] is "sliding_attention"; known here are ["full_attention"]`},
		"layer count":        {qwen3JSON(), obj{"layer_types": []string{"full_attention"}}, "layer_types is a list of 1; it must have an entry for each of num_hidden_layers = 2 layers"},
		"linear in qwen3":    {qwen3JSON(), obj{"layer_types": []string{"full_attention", "linear_attention"}}, `layer_types[1] is "linear_attention"; known here are ["full_attention"]`},
		"layer types type":   {qwen3JSON(), obj{"layer_types": "all"}, `layer_types is "all"; it must be a list of strings`},
		"qwen3 head dim":     {qwen3JSON(), obj{"head_dim": nil}, "head_dim is missing; it must be an integer from 1 to 4096"},
		"qwen3 theta":        {qwen3JSON(), obj{"rope_theta": nil}, "rope_theta is missing; it must be given, here or in rope_parameters"},
		"yarn":               {llamaJSON(), obj{"rope_scaling": obj{"rope_type": "yarn", "factor": 4}}, `rope_scaling.rope_type is "yarn"; known are default, linear, llama3`},
		"legacy type":        {llamaJSON(), obj{"rope_scaling": obj{"type": "dynamic", "factor": 4}}, `rope_scaling.rope_type is "dynamic"; known are default, linear, llama3`},
		"no factor":          {llamaJSON(), obj{"rope_scaling": obj{"type": "linear"}}, "rope_scaling.factor is missing; it must be a number above 0, at most 1e+06"},
		"llama3 order":       {llamaJSON(), obj{"rope_scaling": obj{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 64}}, "rope_scaling.high_freq_factor is 4; it must be above low_freq_factor, which is 4"},
		"theta twice":        {llamaJSON(), obj{"rope_parameters": obj{"rope_theta": 1e6}}, "rope_theta is 500000; rope_parameters gives 1000000; the two must agree"},
		"scaling twice":      {llamaJSON(), obj{"rope_parameters": obj{"rope_type": "linear", "factor": 2}, "rope_scaling": obj{"factor": 3}}, "rope_scaling.factor is 3; rope_parameters gives 2; the two must agree"},
		"rope option":        {llamaJSON(), obj{"rope_scaling": obj{"rope_type": "linear", "factor": 2, "attention_factor": 2}}, "rope_scaling.attention_factor is 2; this rotary option is not known"},
		"rope per kind":      {qwen3JSON(), obj{"rope_parameters": obj{"full_attention": obj{}}}, "rope_parameters.full_attention is {}; this rotary option is not known"},
		"partial in llama":   {llamaJSON(), obj{"partial_rotary_factor": 0.5}, "rope_scaling.partial_rotary_factor is 0.5; models of this type rotate whole heads"},
		"mrope in llama":     {llamaJSON(), obj{"rope_scaling": obj{"rope_type": "default", "mrope_section": []int{1}}}, "rope_scaling.mrope_section is [1]; models of this type have one row of positions"},
		"partial above 1":    {qwen35JSON(), obj{"partial_rotary_factor": 1.5}, "rope_scaling.partial_rotary_factor is 1.5; it must be a number above 0, at most 1"},
		"odd rotary":         {qwen35JSON(), obj{"partial_rotary_factor": 0.1}, "head_dim is 32; the rotated part, 0.1 of it, must be an even number of channels"},
		"v heads":            {qwen35JSON(), obj{"linear_num_value_heads": 3}, "linear_num_value_heads is 3; it must be a multiple of linear_num_key_heads, which is 2"},
		"conv":               {qwen35JSON(), obj{"linear_conv_kernel_dim": 65}, "linear_conv_kernel_dim is 65; it must be an integer from 1 to 64"},
		"gdn missing":        {qwen35JSON(), obj{"linear_key_head_dim": nil}, "linear_key_head_dim is missing; it must be an integer from 1 to 4096"},
		"gate":               {qwen35JSON(), obj{"output_gate_type": "relu"}, `output_gate_type is "relu"; known are silu, swish, sigmoid`},
		"state type":         {qwen35JSON(), obj{"mamba_ssm_dtype": "bfloat16"}, `mamba_ssm_dtype is "bfloat16"; recurrent states are kept in float32 ("float32" would be right)`},
		"mtp embeddings":     {qwen35JSON(), obj{"mtp_use_dedicated_embeddings": true}, "mtp_use_dedicated_embeddings is true; the MTP head shares the embeddings of the trunk (false would be right)"},
		"interval":           {qwen35JSON(), obj{"full_attention_interval": 0}, "full_attention_interval is 0; it must be an integer from 1 to 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			maps.Copy(c.base, c.change)
			_, err := parseValue(t, c.base)
			require.EqualError(t, err, "config.json: "+c.want)
			var bad *ConfigError
			require.ErrorAs(t, err, &bad)
		})
	}
}

func TestConfigRefusesText(t *testing.T) {
	for text, want := range map[string]string{
		"":     "config.json: the file must be one JSON object: unexpected end of JSON input",
		"null": "config.json is null; the file must be one JSON object",
		"[1]":  "config.json: the file must be one JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage",
		"{} x": "config.json: the file must be one JSON object: invalid character 'x' after top-level value",
	} {
		_, err := ParseConfig([]byte(text))
		require.EqualError(t, err, want)
	}
}

// FuzzConfig changes configs: what is accepted holds what Config promises and
// survives being written and read.
func FuzzConfig(f *testing.F) {
	for _, o := range []obj{llamaJSON(), qwen3JSON(), qwen35JSON(), qwen3MoEJSON(), qwen35MoEJSON(), glm4MoEJSON(), deepseekJSON(), glmDSAJSON(), qwen4JSON(), {"model_type": "qwen3_5", "text_config": qwen35JSON()}} {
		text, err := json.Marshal(o)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			var bad *ConfigError
			require.ErrorAs(t, err, &bad)
			return
		}
		for _, n := range []int{c.HiddenSize, c.FeedSize(), c.NumLayers, c.NumHeads, c.NumKVHeads, c.HeadDim, c.VocabSize, c.MaxPositions} {
			require.Positive(t, n)
		}
		require.Zero(t, c.NumHeads%c.NumKVHeads)
		require.Len(t, c.LayerTypes, c.NumLayers)
		require.Zero(t, c.RotaryDim()%2)
		require.Positive(t, c.RotaryDim())
		require.LessOrEqual(t, c.RotaryDim(), c.HeadDim)
		for _, id := range append(c.EOS, c.BOS) {
			require.Less(t, int(id), c.VocabSize)
		}
		requireRoundTrip(t, c)
	})
}
