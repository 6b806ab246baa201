package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
)

// Score is how a router turns logits into weights.
type Score string

// The scores that the engine has.
const (
	Softmax     Score = "softmax"
	SigmoidTopK Score = "sigmoid" // with a bias for the choice alone ("noaux_tc")

	SqrtSoftplus Score = "sqrtsoftplus" // likewise
)

// MoE is the shape of the layers that are mixtures of experts.
type MoE struct {
	Experts    int   // routed experts
	PerToken   int   // of them a token gets
	Size       int   // width inside an expert
	SharedSize int   // width inside the expert that all tokens get; 0 is none
	SharedGate bool  // that one has a sigmoid gate
	Score      Score // of the router
	Groups     int   // groups of experts of which KeptGroups are chosen first; 1 is no grouping
	KeptGroups int
	Normalize  bool    // the weights of a token's experts are divided by their sum
	Scale      float64 // and then multiplied by this
	Limit      float64 // of what enters an expert's product, its gate from above alone; 0 is none
	Hash       []bool  // by layer, whether a table gives the experts of a token; nil: none
}

// maxExperts bounds the experts of a layer.
const maxExperts = 1 << 16

// FeedSize is the width inside the feed-forward part of a layer as a token sees it:
// of the MLP, or of the experts that it gets.
func (c Config) FeedSize() int {
	return max(c.IntermediateSize, c.MoE.Size*c.MoE.PerToken+c.MoE.SharedSize)
}

// experts checks the numbers that all routers have.
func (c *Config) experts(f *fields) {
	m := &c.MoE
	if m.Groups > 0 && (m.Experts%m.Groups != 0 || m.Groups > 1 && m.Experts/m.Groups < 2) {
		f.fail("n_group", strconv.Itoa(m.Groups), fmt.Sprintf("it must divide the %d experts into groups of at least 2", m.Experts))
	}
	if m.KeptGroups > m.Groups {
		f.fail("topk_group", strconv.Itoa(m.KeptGroups), fmt.Sprintf("it must be at most n_group, which is %d", m.Groups))
	}
	if most := m.Experts / max(m.Groups, 1) * m.KeptGroups; m.PerToken > most {
		f.fail("num_experts_per_tok", strconv.Itoa(m.PerToken), fmt.Sprintf("it must be at most %d, the experts to choose from", most))
	}
	if c.IntermediateSize == 0 && slices.Contains(c.Sparse, false) {
		f.fail("intermediate_size", "", fmt.Sprintf("it must be an integer from 1 to %d", maxWidth))
	}
}

// expertCount reads the number of experts under the family's key, or under the one
// that newer versions of transformers write.
func (f *fields) expertCount(key string) int {
	const other = "num_local_experts"
	n, ok := f.optInteger(other, 1, maxExperts)
	if !ok {
		return f.integer(key, 1, maxExperts)
	}
	if m, ok := f.optInteger(key, 1, maxExperts); ok && m != n {
		f.fail(key, strconv.Itoa(m), fmt.Sprintf("%s is %d; the two must agree", other, n))
	}
	return n
}

// parseQwenMoE reads the mixture of the Qwen families; normalize is what an absent
// norm_topk_prob means.
func (c *Config) parseQwenMoE(f *fields, normalize bool) {
	c.MoE = MoE{
		Experts:  f.expertCount("num_experts"),
		PerToken: f.integer("num_experts_per_tok", 1, maxExperts),
		Size:     f.integer("moe_intermediate_size", 1, maxWidth),
		Score:    Softmax, Groups: 1, KeptGroups: 1, Scale: 1,
		Normalize: f.boolean("norm_topk_prob", normalize),
	}
	step, ok := f.optInteger("decoder_sparse_step", 1, maxLayers)
	if !ok {
		step = 1
	}
	var dense []int
	f.decode("mlp_only_layers", &dense, "a list of layer numbers")
	c.Sparse = make([]bool, c.NumLayers)
	for i := range c.Sparse {
		c.Sparse[i] = (i+1)%step == 0 && !slices.Contains(dense, i)
	}
}

// parseSharedMoE reads the gated expert of the hybrid Qwen families.
func (c *Config) parseSharedMoE(f *fields) {
	c.parseQwenMoE(f, true)
	c.MoE.SharedSize = f.integer("shared_expert_intermediate_size", 1, maxWidth)
	c.MoE.SharedGate = true
}

// parseNoAux reads the mixture of DeepSeek-V3 and of the GLM families after it.
func (c *Config) parseNoAux(f *fields) {
	if name := f.text("scoring_func", "sigmoid"); name != "sigmoid" {
		f.fail("scoring_func", strconv.Quote(name), "the score of a router must be sigmoid")
	}
	if name := f.text("topk_method", "noaux_tc"); name != "noaux_tc" {
		f.fail("topk_method", strconv.Quote(name), "experts must be chosen by noaux_tc")
	}
	if every, ok := f.optInteger("moe_layer_freq", 1, maxLayers); ok && every != 1 {
		f.fail("moe_layer_freq", strconv.Itoa(every), "all layers from first_k_dense_replace on must be mixtures (1)")
	}
	shared, ok := f.optInteger("n_shared_experts", 0, maxExperts)
	if !ok {
		shared = 1
	}
	c.MoE = MoE{
		Experts:  f.expertCount("n_routed_experts"),
		PerToken: f.integer("num_experts_per_tok", 1, maxExperts),
		Size:     f.integer("moe_intermediate_size", 1, maxWidth),
		Score:    SigmoidTopK, Groups: 1, KeptGroups: 1, Scale: 1,
		Normalize: f.boolean("norm_topk_prob", true),
	}
	c.MoE.SharedSize = shared * c.MoE.Size
	if n, ok := f.optInteger("n_group", 1, maxExperts); ok {
		c.MoE.Groups = n
	}
	if n, ok := f.optInteger("topk_group", 1, maxExperts); ok {
		c.MoE.KeptGroups = n
	}
	if v, ok := f.optNumber("routed_scaling_factor", 0, 1e6); ok {
		c.MoE.Scale = v
	}
	c.sparseAfter(f)
}

// sparseAfter reads which layers are mixtures: mlp_layer_types, or all after the
// first ones.
func (c *Config) sparseAfter(f *fields) {
	first := f.integer("first_k_dense_replace", 0, maxLayers)
	c.Sparse = make([]bool, c.NumLayers)
	for i := range c.Sparse {
		c.Sparse[i] = i >= first
	}
	var kinds []string
	if !f.decode("mlp_layer_types", &kinds, "a list of strings") {
		return
	}
	if len(kinds) != c.NumLayers {
		f.fail("mlp_layer_types", fmt.Sprintf("a list of %d", len(kinds)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	for i, k := range kinds {
		if k != "dense" && k != "sparse" {
			f.fail(fmt.Sprintf("mlp_layer_types[%d]", i), strconv.Quote(k), "known are dense, sparse")
		}
		c.Sparse[i] = k == "sparse"
	}
}

// moeJSON adds the keys of the mixture.
func (c Config) moeJSON(out map[string]any) {
	m := c.MoE
	if c.Sparse == nil || c.Pooled.Window > 0 {
		return
	}
	out["num_experts_per_tok"], out["moe_intermediate_size"], out["norm_topk_prob"] = m.PerToken, m.Size, m.Normalize
	if m.Score == SigmoidTopK {
		out["n_routed_experts"], out["n_shared_experts"] = m.Experts, m.SharedSize/m.Size
		out["n_group"], out["topk_group"], out["routed_scaling_factor"] = m.Groups, m.KeptGroups, m.Scale
		kinds := make([]string, len(c.Sparse))
		for i, sparse := range c.Sparse {
			if kinds[i] = "dense"; sparse {
				kinds[i] = "sparse"
			}
		}
		out["first_k_dense_replace"], out["mlp_layer_types"] = 0, kinds
		return
	}
	dense := []int{}
	for i, sparse := range c.Sparse {
		if !sparse {
			dense = append(dense, i)
		}
	}
	out["num_experts"], out["mlp_only_layers"] = m.Experts, dense
	if m.SharedSize > 0 {
		out["shared_expert_intermediate_size"] = m.SharedSize
	}
}
