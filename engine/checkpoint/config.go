package checkpoint

import (
	"fmt"
	"slices"
	"strings"
)

// Family says which arithmetic a model follows.
type Family string

// The families that the engine runs.
const (
	Llama       Family = "llama"        // Llama 2 and 3, SmolLM2
	Qwen3       Family = "qwen3"        // Qwen3 dense: per-head norms of q and k
	Qwen3MoE    Family = "qwen3_moe"    // Qwen3 with a mixture of experts
	Qwen3Next   Family = "qwen3_next"   // Qwen3_5MoE with other files: fused GDN projections
	Qwen3_5     Family = "qwen3_5"      // Gated DeltaNet and gated full attention
	Qwen3_5MoE  Family = "qwen3_5_moe"  // Qwen3_5 with a mixture of experts
	GLM4MoE     Family = "glm4_moe"     // GLM-4.5 to 4.7
	DeepseekV3  Family = "deepseek_v3"  // latent attention and a mixture of experts
	DeepseekV32 Family = "deepseek_v32" // DeepseekV3 with an index that chooses keys
	GLMMoEDSA   Family = "glm_moe_dsa"  // GLM-5: likewise, with indexes that layers share
	Qwen4Exp    Family = "qwen4_exp"    // Qwen3_5MoE with residual streams, an index of blocks and n-gram embeddings
	DeepseekV4  Family = "deepseek_v4"  // streams, and attention to a window and to pooled keys
	DeepseekV41 Family = "deepseek_v41" // likewise, with pooled keys and choices that layers share
)

// LayerKind is the kind of mixer of a decoder layer.
type LayerKind string

// The two kinds of layer, spelled as in layer_types.
const (
	FullAttention   LayerKind = "full_attention"
	LinearAttention LayerKind = "linear_attention" // Gated DeltaNet
)

// Activation is an elementwise function.
type Activation string

// The activations that the engine has.
const (
	SiLU    Activation = "silu"
	Sigmoid Activation = "sigmoid"
)

// Config is what config.json says of a model, checked: positive sizes, heads
// that divide, features that the engine has. Sizes are counts of elements.
type Config struct {
	ModelType    string // as in the file, one of ModelTypes
	Architecture string // architectures[0], or the usual one of the model type
	Family       Family

	HiddenSize       int // width of the residual stream
	IntermediateSize int // width inside the MLP; 0 where all layers are mixtures
	NumLayers        int // decoder layers, MTP layers not counted
	NumHeads         int // query heads of full attention
	NumKVHeads       int // key and value heads; divides NumHeads
	HeadDim          int // width of one head; NumHeads*HeadDim may differ from HiddenSize
	VocabSize        int // rows of the embedding; may be more than the tokenizer's
	MaxPositions     int // longest sequence the model was made for
	RMSEps           float64
	TieEmbeddings    bool // the LM head is the embedding
	Rope             Rope
	AttnOutputGate   bool        // q_proj also holds a sigmoid gate per head (Qwen3.5)
	LayerTypes       []LayerKind // one per layer
	GDN              GDN         // zero where no layer is linear attention
	QKVBias          bool        // q, k and v projections have biases
	MLA              MLA         // latent attention; zero where a family has none
	Index            Index       // sparse attention; zero where a family has none
	Pooled           Pooled      // attention to a window and pooled keys; zero where a family has none
	Spark            Spark       // draft module in the model's files; zero where there is none
	QKNorm           bool        // norms of each head of q and k, where a family has a choice
	Streams          Streams     // residual streams; zero where a family has one
	Grams            Grams       // n-gram embeddings; zero where a family has none
	MTPLayers        int         // multi-token-prediction layers
	MoE              MoE         // zero where a family has none
	Sparse           []bool      // by layer, whether it is one; nil where a family has none

	BOS int32   // begin-of-text id, -1 where there is none
	EOS []int32 // ids that end a text, in the order found, each once

	// Unread lists the keys of the file that this package neither reads nor
	// knows to be without meaning for inference, sorted. They are harmless as
	// far as is known; a model that behaves oddly is a reason to look at them.
	Unread []string
}

// GDN is the shape of the Gated DeltaNet layers.
type GDN struct {
	NumKHeads  int        // key (and query) heads
	NumVHeads  int        // value heads, a multiple of NumKHeads
	KDim       int        // width of a key head
	VDim       int        // width of a value head
	ConvKernel int        // taps of the causal convolution
	OutputGate Activation // of the gate z behind the output norm
}

// KeySize is the width of all key heads together.
func (g GDN) KeySize() int { return g.NumKHeads * g.KDim }

// ValueSize is the width of all value heads together.
func (g GDN) ValueSize() int { return g.NumVHeads * g.VDim }

// ConvSize is the number of channels of the convolution: q, k and v.
func (g GDN) ConvSize() int { return 2*g.KeySize() + g.ValueSize() }

// RopeType names how the rotary frequencies are scaled.
type RopeType string

// The scalings that the engine has.
const (
	RopeDefault RopeType = "default"
	RopeLinear  RopeType = "linear" // all frequencies divided by Factor
	RopeLlama3  RopeType = "llama3" // low ones divided, high ones kept, a ramp between
	RopeYaRN    RopeType = "yarn"   // likewise, with a ramp over channels, and longer vectors
)

// Rope describes the rotary position embedding (half-split pairs).
type Rope struct {
	Type          RopeType
	Theta         float64 // base of the frequencies
	PartialFactor float64 // share of HeadDim that is rotated, the first channels

	Factor       float64 // linear, llama3 and yarn
	LowFreq      float64 // llama3: low_freq_factor
	HighFreq     float64 // llama3: high_freq_factor
	OriginalSize int     // llama3 and yarn: original_max_position_embeddings
	BetaFast     float64 // yarn: rotations over OriginalSize above which a frequency is kept
	BetaSlow     float64 // yarn: and below which it is divided by Factor
	MScale       float64 // yarn: 0 where the file has none
	MScaleAll    float64 // yarn: mscale_all_dim, likewise
}

// RotaryDim is the number of channels of a head that are rotated, even.
func (c Config) RotaryDim() int {
	if c.MLA.KVRank > 0 {
		return c.MLA.Rope
	}
	if c.Pooled.Window > 0 {
		return c.Pooled.Rope
	}
	return int(float64(c.HeadDim) * c.Rope.PartialFactor)
}

// Has reports whether any layer is of that kind.
func (c Config) Has(kind LayerKind) bool { return slices.Contains(c.LayerTypes, kind) }

// ConfigError says what is wrong with a configuration file.
type ConfigError struct {
	File  string // base name, such as config.json
	Key   string // path of the key, such as text_config.hidden_size; may be empty
	Value string // the value found, as JSON; empty where the key is missing
	Want  string // what would be right
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	switch {
	case e.Value != "":
		fmt.Fprintf(&b, " is %s; ", shorten(e.Value))
	case e.Key != "":
		b.WriteString(" is missing; ")
	default:
		b.WriteString(": ")
	}
	b.WriteString(e.Want)
	return b.String()
}

// shorten keeps a value that goes into an error to one short line.
func shorten(v string) string {
	v = strings.Join(strings.Fields(v), " ")
	if r := []rune(v); len(r) > 80 {
		return string(r[:80]) + "..."
	}
	return v
}
