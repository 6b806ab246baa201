package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what a config may ask for: far above every model that exists, and
// low enough that products of two of them do not overflow.
const (
	maxWidth     = 1 << 20
	maxLayers    = 4096
	maxHeads     = 4096
	maxHeadDim   = 4096
	maxVocab     = 1 << 20
	maxPositions = 1 << 30
	maxConv      = 64
)

// modelType says what a model_type of config.json means.
type modelType struct {
	family        Family
	architectures []string // accepted; the first stands in for an absent list
	parse         func(*fields, *Config)
	// has lists keys of refusals that the family's own code reads.
	has []string
}

var (
	qwenMoE   = []string{"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "mlp_only_layers"}
	sharedMoE = append(slices.Clone(qwenMoE), "shared_expert_intermediate_size")
	noAuxMoE  = []string{"n_routed_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"}
)

// modelTypes is the dispatch by exact string.
var modelTypes = map[string]modelType{
	"llama":      {Llama, []string{"LlamaForCausalLM"}, parseLlama, nil},
	"qwen3":      {Qwen3, []string{"Qwen3ForCausalLM"}, parseQwen3, nil},
	"qwen3_moe":  {Qwen3MoE, []string{"Qwen3MoeForCausalLM"}, parseQwen3MoE, qwenMoE},
	"qwen3_next": {Qwen3Next, []string{"Qwen3NextForCausalLM"}, parseQwen35MoE, sharedMoE},
	"qwen3_5": {Qwen3_5, []string{
		"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"}, parseQwen35, nil},
	"qwen3_5_text": {Qwen3_5, []string{
		"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"}, parseQwen35, nil},
	"qwen3_5_moe": {Qwen3_5MoE, []string{
		"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"}, parseQwen35MoE, sharedMoE},
	"qwen3_5_moe_text": {Qwen3_5MoE, []string{
		"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"}, parseQwen35MoE, sharedMoE},
	"deepseek_v3":  {DeepseekV3, []string{"DeepseekV3ForCausalLM"}, parseDeepseekV3, noAuxMoE},
	"deepseek_v32": {DeepseekV32, []string{"DeepseekV32ForCausalLM"}, parseDeepseekV32, noAuxMoE},
	"glm_moe_dsa":  {GLMMoEDSA, []string{"GlmMoeDsaForCausalLM"}, parseGLMMoEDSA, noAuxMoE},
	"qwen4_exp": {Qwen4Exp, []string{
		"Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"}, parseQwen4Exp, sharedMoE},
	"qwen4_exp_text": {Qwen4Exp, []string{
		"Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"}, parseQwen4Exp, sharedMoE},
	"deepseek_v4":  {DeepseekV4, []string{"DeepseekV4ForCausalLM"}, parseDeepseekV4, append(slices.Clone(noAuxMoE), "sliding_window")},
	"deepseek_v41": {DeepseekV41, []string{"DeepseekV41ForCausalLM"}, parseDeepseekV41, append(slices.Clone(noAuxMoE), "sliding_window")},
	"deepseek_v41_text": {DeepseekV41, []string{
		"DeepseekV41ForCausalLM"}, parseDeepseekV41, append(slices.Clone(noAuxMoE), "sliding_window")},
	"glm4_moe": {GLM4MoE, []string{"Glm4MoeForCausalLM"}, parseGLM4MoE, append(slices.Clone(noAuxMoE), "attention_bias")},
}

// ModelTypes returns the values of model_type that ParseConfig accepts, sorted.
func ModelTypes() []string { return slices.Sorted(maps.Keys(modelTypes)) }

// ParseConfig reads the text of a config.json. Both layouts of multimodal
// publishers are accepted: the fields of the language model may stand under
// text_config or at the top. Errors are of type *ConfigError.
func ParseConfig(text []byte) (Config, error) {
	var err error
	top := parseFields(configFile, text, &err)
	body := top
	if nested := top.object("text_config"); nested != nil {
		body = nested
	}
	c := Config{BOS: -1}
	mt := c.dispatch(top, body)
	if err != nil {
		return Config{}, err
	}
	refuseUnsupported(body, mt.has)
	if body != top {
		refuseUnsupported(top, mt.has)
	}
	quantizationOf(body, top)
	c.parseCommon(top, body)
	if c.IntermediateSize == 0 && !slices.Contains(mt.has, "moe_intermediate_size") {
		body.integer("intermediate_size", 1, maxWidth)
	}
	mt.parse(body, &c)
	c.checkIDs(body)
	if err != nil {
		return Config{}, err
	}
	c.Unread = body.unread(harmless)
	if body != top {
		c.Unread = append(c.Unread, top.unread(harmless)...)
	}
	return c, nil
}

// dispatch finds the model type, by exact string.
func (c *Config) dispatch(top, body *fields) modelType {
	known := strings.Join(ModelTypes(), ", ")
	c.ModelType = top.text("model_type", "")
	if c.ModelType == "" {
		top.fail("model_type", "", "it must be one of "+known)
		return modelType{}
	}
	mt, ok := modelTypes[c.ModelType]
	if !ok {
		top.fail("model_type", strconv.Quote(c.ModelType), "this model is not known; known are "+known)
		return modelType{}
	}
	if body != top {
		inner := body.text("model_type", c.ModelType)
		if modelTypes[inner].family != mt.family {
			body.fail("model_type", strconv.Quote(inner), "it must go with model_type "+strconv.Quote(c.ModelType)+"; known are "+known)
		}
	}
	var archs []string
	top.decode("architectures", &archs, "a list of strings")
	if len(archs) == 0 {
		c.Architecture = mt.architectures[0]
	} else {
		c.Architecture = archs[0]
	}
	if !slices.Contains(mt.architectures, c.Architecture) {
		top.fail("architectures[0]", strconv.Quote(c.Architecture),
			fmt.Sprintf("this architecture is not known; known for model_type %q are %s", c.ModelType, strings.Join(mt.architectures, ", ")))
	}
	c.Family = mt.family
	return mt
}

// parseCommon reads what all families share.
func (c *Config) parseCommon(top, body *fields) {
	c.HiddenSize = body.integer("hidden_size", 1, maxWidth)
	c.IntermediateSize, _ = body.optInteger("intermediate_size", 1, maxWidth)
	c.NumLayers = body.integer("num_hidden_layers", 1, maxLayers)
	c.NumHeads = body.integer("num_attention_heads", 1, maxHeads)
	c.VocabSize = body.integer("vocab_size", 1, maxVocab)
	c.MaxPositions = body.integer("max_position_embeddings", 1, maxPositions)
	c.RMSEps = body.number("rms_norm_eps", 0, 1)
	c.TieEmbeddings = body.boolean("tie_word_embeddings", false)
	// transformers ties by the outer config of a multimodal wrapper.
	c.TieEmbeddings = top.boolean("tie_word_embeddings", c.TieEmbeddings)
	for _, f := range []*fields{body, top} {
		c.addEOS(f.ids("eos_token_id"))
		if ids := f.ids("bos_token_id"); c.BOS < 0 && len(ids) > 0 {
			c.BOS = ids[0]
		}
	}
}

// kvHeads checks the number of key-value heads.
func (c *Config) kvHeads(f *fields, n int) {
	c.NumKVHeads = n
	if n > 0 && c.NumHeads%n != 0 {
		f.fail("num_key_value_heads", strconv.Itoa(n), fmt.Sprintf("it must divide num_attention_heads, which is %d", c.NumHeads))
	}
}

// fullLayers reads layer_types where each layer must be full attention.
func (c *Config) fullLayers(f *fields) {
	c.LayerTypes = slices.Repeat([]LayerKind{FullAttention}, c.NumLayers)
	c.layerTypes(f, FullAttention)
}

// layerTypes overwrites LayerTypes by the file's list, when it has one.
func (c *Config) layerTypes(f *fields, allowed ...LayerKind) {
	var kinds []LayerKind
	if !f.decode("layer_types", &kinds, "a list of strings") {
		return
	}
	if len(kinds) != c.NumLayers {
		f.fail("layer_types", fmt.Sprintf("a list of %d", len(kinds)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	for i, k := range kinds {
		if !slices.Contains(allowed, k) {
			f.fail(fmt.Sprintf("layer_types[%d]", i), strconv.Quote(string(k)), fmt.Sprintf("known here are %q", allowed))
			return
		}
	}
	c.LayerTypes = kinds
}

func (c *Config) addEOS(ids []int32) {
	for _, id := range ids {
		if !slices.Contains(c.EOS, id) {
			c.EOS = append(c.EOS, id)
		}
	}
}

func (c *Config) checkIDs(f *fields) {
	want := fmt.Sprintf("it must be an id below vocab_size, which is %d", c.VocabSize)
	for _, id := range c.EOS {
		if id < 0 || int(id) >= c.VocabSize {
			f.fail("eos_token_id", strconv.Itoa(int(id)), want)
		}
	}
	if c.BOS < -1 || int(c.BOS) >= c.VocabSize {
		f.fail("bos_token_id", strconv.Itoa(int(c.BOS)), want)
	}
}

// addGeneration adds the end-of-text ids of generation_config.json: the config
// of a chat model often lists only one of them.
func (c *Config) addGeneration(text []byte) error {
	var err error
	f := parseFields(generationFile, text, &err)
	c.addEOS(f.ids("eos_token_id"))
	c.checkIDs(f)
	return err
}
