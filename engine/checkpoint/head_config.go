package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// HeadKind is a kind of draft head that is published apart from its target.
type HeadKind string

// The kinds of head that the engine runs.
const (
	HeadEagle  HeadKind = "eagle"  // Li et al. 2024, arXiv:2401.15077
	HeadEagle3 HeadKind = "eagle3" // Li et al. 2025, arXiv:2503.01840
	HeadMedusa HeadKind = "medusa" // Cai et al. 2024, arXiv:2401.10774
	HeadDFlash HeadKind = "dflash" // block-parallel, causal inside the block
	HeadDSpark HeadKind = "dspark" // a DFlash head with a Markov head and a confidence head
	HeadMTP    HeadKind = "mtp"    // a model's own multi-token-prediction module, by the names of the model's file
)

// HeadConfig is what the config.json of a draft head says, checked. Both
// layouts of EAGLE-3 heads are read: that of the reference code and SGLang,
// flat, and that of the speculators library, with the layer's fields under
// transformer_layer_config.
type HeadConfig struct {
	Kind HeadKind
	// Text is the file as it was read; nil where there is none.
	Text []byte
	// Layer is the geometry of the head's decoder layers, of family Llama
	// (eagle, eagle3) or Qwen3 (dflash, dspark); of a Medusa or MTP head only HiddenSize
	// and VocabSize are set: the layer of an MTP head is as the model's config.json
	// says. VocabSize is the target's.
	Layer Config
	// DraftVocab is the number of tokens that the head's own LM head knows.
	DraftVocab int
	// TargetHidden is the width of the target's hidden states.
	TargetHidden int
	// Taps are the places in the target whose residual streams the head
	// reads, by the number of layers run before; nil leaves the choice to
	// DefaultTaps.
	Taps []int

	NormBeforeResidual bool // eagle3: the layer adds to the normed features
	NormBeforeFC       bool // eagle3: one norm over all features
	NormOutput         bool // eagle3: the next draft reads the normed hidden state

	Heads, HeadLayers int // medusa: heads, and residual layers of each

	Block int   // dflash, dspark: rows of a block, the last token and the masked ones
	Mask  int32 // dflash, dspark: the token in the masked places

	Anchor           bool // dspark: the row of the last token drafts too, each row the token after its own place
	MarkovRank       int  // dspark: width of the Markov head
	Confidence       bool // dspark: there may be a confidence head
	ConfidenceMarkov bool // dspark: it reads the Markov head's embedding too
}

// DefaultTaps returns the places that EAGLE-3's reference code takes for a
// target of that many layers: before layers 2, half, and the third from the end.
func DefaultTaps(layers int) []int {
	return []int{min(2, layers), layers / 2, max(0, layers-3)}
}

// architectures of heads, by the first entry of the list in config.json.
var headArchitectures = map[string]HeadKind{
	"LlamaForCausalLMEagle3": HeadEagle3, "Eagle3LlamaForCausalLM": HeadEagle3, "Eagle3Speculator": HeadEagle3, "Eagle3DraftModel": HeadEagle3,
	"MedusaModel":      HeadMedusa,
	"DFlashDraftModel": HeadDFlash,
	"Qwen3DSparkModel": HeadDSpark, "DSparkDraftModel": HeadDSpark, "DSparkSpeculator": HeadDSpark,
	"LlamaForCausalLM": HeadEagle, "EagleLlamaForCausalLM": HeadEagle, "LlamaForCausalLMEagle": HeadEagle, "EAGLEModel": HeadEagle,
	"MTPDraftModel": HeadMTP,
}

// ParseHeadConfig reads the text of a head's config.json. Errors are of type
// *ConfigError.
func ParseHeadConfig(text []byte) (HeadConfig, error) {
	var err error
	top := parseFields(configFile, text, &err)
	c := HeadConfig{Text: text}
	c.Kind = headKind(top)
	if err != nil {
		return c, err
	}
	switch c.Kind {
	case HeadMedusa:
		c.parseMedusa(top)
		return c, err
	case HeadMTP:
		c.parseMTP(top)
		return c, err
	}
	body := top
	if nested := top.object("transformer_layer_config"); nested != nil {
		body = nested
	}
	refuseUnsupported(body, nil)
	c.Layer.BOS = -1
	c.Layer.parseCommon(top, body)
	body.integer("intermediate_size", 1, maxWidth)
	switch c.Kind {
	case HeadEagle, HeadEagle3:
		c.Layer.ModelType, c.Layer.Family = "llama", Llama
		parseLlama(body, &c.Layer)
		c.parseEagle(top, body)
	default:
		c.Layer.ModelType, c.Layer.Family = "qwen3", Qwen3
		parseQwen3(body, &c.Layer)
		c.parseBlock(top, body)
	}
	return c, err
}

// headKind finds what kind of head a file describes.
func headKind(f *fields) HeadKind {
	var archs []string
	f.decode("architectures", &archs, "a list of strings")
	kind, of := f.text("speculators_model_type", ""), "speculators_model_type"
	if kind == "" && len(archs) > 0 {
		kind, of = string(headArchitectures[archs[0]]), "architectures[0]"
		if kind == "" {
			kind = archs[0]
		}
	}
	if kind == "" {
		kind, of = f.text("model_type", ""), "model_type"
	}
	known := []HeadKind{HeadEagle, HeadEagle3, HeadMedusa, HeadDFlash, HeadDSpark, HeadMTP}
	if !slices.Contains(known, HeadKind(kind)) {
		var archs []string
		for a := range headArchitectures {
			archs = append(archs, a)
		}
		slices.Sort(archs)
		f.fail(of, strconv.Quote(kind), fmt.Sprintf("no such draft head is known; known are %q, and the architectures %s", known, strings.Join(archs, ", ")))
	}
	return HeadKind(kind)
}

func (c *HeadConfig) parseEagle(top, body *fields) {
	if c.Layer.NumLayers != 1 {
		body.fail("num_hidden_layers", strconv.Itoa(c.Layer.NumLayers), "an EAGLE head has one layer")
	}
	c.widths(top, body)
	if c.Kind == HeadEagle {
		if top.boolean("layernorms", false) {
			top.fail("layernorms", "true", "norms of the embedding and in front of the LM head are not supported")
		}
		return
	}
	c.NormBeforeResidual = top.boolean("norm_before_residual", false)
	c.NormBeforeFC = top.boolean("norm_before_fc", false)
	c.NormOutput = top.boolean("norm_output", false)
	if top.boolean("fc_norm", false) {
		top.fail("fc_norm", "true", "a norm for each feature is not supported; norm_before_fc is")
	}
	from := top
	if e := top.object("eagle_config"); e != nil && e.has("eagle_aux_hidden_state_layer_ids") {
		from = e
	}
	c.taps(from, "eagle_aux_hidden_state_layer_ids", 0)
}

// widths reads the sizes that a head has beside its target's.
func (c *HeadConfig) widths(top, body *fields) {
	c.DraftVocab, c.TargetHidden = c.Layer.VocabSize, c.Layer.HiddenSize
	for _, f := range []*fields{body, top} {
		if v, ok := f.optInteger("draft_vocab_size", 1, maxVocab); ok {
			c.DraftVocab = v
		}
		if v, ok := f.optInteger("target_hidden_size", 1, maxWidth); ok {
			c.TargetHidden = v
		}
	}
	if c.DraftVocab > c.Layer.VocabSize {
		top.fail("draft_vocab_size", strconv.Itoa(c.DraftVocab), fmt.Sprintf("it can't be above vocab_size, which is %d", c.Layer.VocabSize))
	}
}

// taps reads a list of layers; add makes them numbers of layers run.
func (c *HeadConfig) taps(f *fields, key string, add int) {
	if !f.decode(key, &c.Taps, "a list of layers") {
		return
	}
	if len(c.Taps) == 0 || len(c.Taps) > 64 {
		f.fail(key, fmt.Sprint(c.Taps), "it must list 1 to 64 layers")
	}
	for i := range c.Taps {
		if c.Taps[i] < 0 || c.Taps[i] > maxLayers {
			f.fail(key, fmt.Sprint(c.Taps), fmt.Sprintf("layers are 0..%d", maxLayers))
		}
		c.Taps[i] += add
	}
}

func (c *HeadConfig) parseMedusa(f *fields) {
	c.Layer.HiddenSize = f.integer("hidden_size", 1, maxWidth)
	c.Layer.VocabSize = f.integer("vocab_size", 1, maxVocab)
	c.TargetHidden, c.DraftVocab = c.Layer.HiddenSize, c.Layer.VocabSize
	if v, ok := f.optInteger("truncated_vocab_size", 1, maxVocab); ok {
		c.DraftVocab = v
	}
	if c.DraftVocab > c.Layer.VocabSize {
		f.fail("truncated_vocab_size", strconv.Itoa(c.DraftVocab), fmt.Sprintf("it can't be above vocab_size, which is %d", c.Layer.VocabSize))
	}
	var ok bool
	if c.Heads, ok = f.optInteger("num_heads", 1, 63); !ok {
		c.Heads = f.integer("medusa_num_heads", 1, 63)
	}
	if c.HeadLayers, ok = f.optInteger("num_hidden_layers", 0, 16); !ok {
		c.HeadLayers = f.integer("medusa_num_layers", 0, 16)
	}
	if f.boolean("medusa_fc_bias", false) {
		f.fail("medusa_fc_bias", "true", "biases are not supported")
	}
	if f.boolean("original_lm_head", false) {
		f.fail("original_lm_head", "true", "each head must have an LM head of its own (lm_heads.N.weight)")
	}
}

func (c *HeadConfig) parseMTP(f *fields) {
	c.Layer.HiddenSize = f.integer("hidden_size", 1, maxWidth)
	c.Layer.VocabSize = f.integer("vocab_size", 1, maxVocab)
	c.widths(f, f)
}
