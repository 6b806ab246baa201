package checkpoint

import (
	"fmt"
	"slices"
	"strconv"
)

// Pooled is the shape of attention over a window of keys and keys pooled from groups
// of positions (DeepSeek-V4): one key, its own value, for all heads.
type Pooled struct {
	Rope    int // channels of a head that are rotated, the last ones, even
	QRank   int // width of the latent that queries are made of
	OGroups int // groups of heads whose outputs are projected apart
	ORank   int // width of a group's projection
	Window  int // positions that a token sees as they are
	// Ratios is, by layer, the positions that make a group; 0: none.
	Ratios []int
	// Overlap is, by layer, whether a group's key is pooled from the group before
	// too, and an index chooses among the groups.
	Overlap []bool
	// GroupRope is the rotary embedding of layers with groups; Config.Rope that of
	// the others.
	GroupRope Rope
	// Share says which layers share groups and choices; nil: each has its own.
	Share *PooledShare
}

// Kinds of layers of DeepSeek-V4 as transformers calls them, and the positions of a
// group that the publisher's config means by them.
const (
	slidingLayer LayerKind = "sliding_attention"
	sparseLayer  LayerKind = "compressed_sparse_attention"
	heavyLayer   LayerKind = "heavily_compressed_attention"
)

var publishedRatios = map[int]LayerKind{0: slidingLayer, 4: sparseLayer, 128: heavyLayer}

// parseDeepseekV4 reads the fields of DeepSeek-V4, as its publisher writes them or as
// transformers saves them.
func parseDeepseekV4(f *fields, c *Config) {
	c.parsePooled(f)
	c.MTPLayers, _ = f.optInteger("num_nextn_predict_layers", 0, maxLayers)
	c.pooledLayers(f)
	c.pooledRopes(f)
	c.Index = Index{
		Heads: f.integer("index_n_heads", 1, maxHeads),
		Dim:   f.integer("index_head_dim", 2, maxHeadDim),
		TopK:  f.integer("index_topk", 1, maxPositions),
		Own:   slices.Clone(c.Pooled.Overlap),
	}
	if c.Index.Dim%2 != 0 || c.Index.Dim < c.Pooled.Rope {
		f.fail("index_head_dim", strconv.Itoa(c.Index.Dim), fmt.Sprintf("it must be even and at least the %d channels that are rotated", c.Pooled.Rope))
	}
	c.parseHyper(f)
	c.parsePooledMoE(f)
	c.MoE.Normalize = true
	c.hashLayers(f)
	c.experts(f)
}

// parsePooled reads the shape of a head and of what surrounds the attention.
func (c *Config) parsePooled(f *fields) {
	if n, ok := f.optInteger("num_key_value_heads", 1, maxHeads); ok && n != 1 {
		f.fail("num_key_value_heads", strconv.Itoa(n), "all heads share one key (1)")
	}
	c.NumKVHeads = 1
	c.HeadDim = f.integer("head_dim", 2, maxHeadDim)
	p := &c.Pooled
	p.QRank = f.integer("q_lora_rank", 2, maxWidth)
	p.OGroups, p.ORank = f.integer("o_groups", 1, maxHeads), f.integer("o_lora_rank", 2, maxWidth)
	p.Window = f.integer("sliding_window", 1, maxPositions)
	share, ok := f.optNumber("partial_rotary_factor", 0, 1)
	if p.Rope = int(share*float64(c.HeadDim) + 0.5); !ok {
		p.Rope = f.integer("qk_rope_head_dim", 2, maxHeadDim)
	} else if n, both := f.optInteger("qk_rope_head_dim", 2, maxHeadDim); both && n != p.Rope {
		f.fail("qk_rope_head_dim", strconv.Itoa(n), fmt.Sprintf("partial_rotary_factor gives %d; the two must agree", p.Rope))
	}
	if p.Rope%2 != 0 || p.Rope < 2 || p.Rope > c.HeadDim {
		f.fail("qk_rope_head_dim", strconv.Itoa(p.Rope), fmt.Sprintf("it must be even and at most head_dim, which is %d", c.HeadDim))
	}
	if c.HeadDim%2 != 0 || p.QRank%2 != 0 || p.ORank%2 != 0 {
		f.fail("head_dim", strconv.Itoa(c.HeadDim), fmt.Sprintf("it, q_lora_rank (%d) and o_lora_rank (%d) must be even", p.QRank, p.ORank))
	}
	if p.OGroups > 0 && c.NumHeads%p.OGroups != 0 {
		f.fail("o_groups", strconv.Itoa(p.OGroups), fmt.Sprintf("it must divide num_attention_heads, which is %d", c.NumHeads))
	}
}

// pooledLayers reads the groups of each layer: compress_ratios, or layer_types with
// compress_rates.
func (c *Config) pooledLayers(f *fields) {
	c.LayerTypes = slices.Repeat([]LayerKind{FullAttention}, c.NumLayers)
	kinds := make([]LayerKind, 0, c.NumLayers)
	rates := map[LayerKind]int{sparseLayer: 4, heavyLayer: 128}
	if given := f.object("compress_rates"); given != nil {
		for kind := range rates {
			if n, ok := given.optInteger(string(kind), 2, maxGroup); ok {
				rates[kind] = n
			}
		}
		if left := given.unread(nil); len(left) > 0 {
			given.fail(left[0][len(given.path):], "", fmt.Sprintf("known are %q", []LayerKind{sparseLayer, heavyLayer}))
		}
	}
	var ratios []int
	switch {
	case f.decode("layer_types", &kinds, "a list of strings"):
		f.used["compress_ratios"] = true
	case f.decode("compress_ratios", &ratios, "a list of integers"):
		// The publisher lists the layers of the MTP module too.
		if len(ratios) == c.NumLayers+c.MTPLayers {
			ratios = ratios[:c.NumLayers]
		}
		for i, n := range ratios {
			kind, known := publishedRatios[n]
			if !known {
				f.fail(fmt.Sprintf("compress_ratios[%d]", i), strconv.Itoa(n), "known are 0, 4, 128")
			}
			kinds = append(kinds, kind)
		}
	default:
		f.fail("compress_ratios", "", "it must be a list with an entry for each layer")
	}
	if len(kinds) != c.NumLayers {
		f.fail("compress_ratios", fmt.Sprintf("a list of %d", len(kinds)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	for i, k := range kinds {
		if k != slidingLayer && rates[k] == 0 {
			f.fail(fmt.Sprintf("layer_types[%d]", i), strconv.Quote(string(k)), fmt.Sprintf("known here are %q", []LayerKind{slidingLayer, sparseLayer, heavyLayer}))
		}
		c.Pooled.Ratios = append(c.Pooled.Ratios, rates[k])
		c.Pooled.Overlap = append(c.Pooled.Overlap, k == sparseLayer)
	}
}

// maxGroup bounds the positions of a group.
const maxGroup = 4096

// pooledRopes reads the two rotary embeddings: rope_parameters with main and
// compress, or rope_theta and compress_rope_theta, to which alone rope_scaling
// belongs.
func (c *Config) pooledRopes(f *fields) {
	none := &fields{file: f.file, path: f.path, used: map[string]bool{}, err: f.err}
	main, groups := none, none
	for _, name := range []string{"rope_parameters", "rope_scaling"} {
		given := f.object(name)
		if given == nil {
			continue
		}
		if groups = given; given.has("main") || given.has("compress") {
			main, groups = given.object("main"), given.object("compress")
			if main == nil || groups == nil {
				given.fail("main", "", "main and compress must both be given, or neither")
				return
			}
		}
	}
	c.Rope = f.pooledRope(main, "rope_theta", 1e4)
	c.Pooled.GroupRope = f.pooledRope(groups, "compress_rope_theta", 1.6e5)
}

// pooledRope reads one of them, whose theta may stand at the level of the model. It
// rotates whole what parsePooled has cut off, and YaRN leaves vectors as long as they
// are.
func (f *fields) pooledRope(s *fields, theta string, absent float64) Rope {
	c := Config{Rope: Rope{Theta: absent, PartialFactor: 1}}
	outer, there := f.optNumber(theta, 0, 1e12)
	inner, ok := s.optNumber("rope_theta", 0, 1e12)
	switch {
	case ok && theta == "rope_theta" && there && inner != outer:
		f.fail(theta, strconv.FormatFloat(outer, 'g', -1, 64), fmt.Sprintf("%srope_theta is %g; the two must agree", s.path, inner))
	case ok:
		c.Rope.Theta = inner
	case there:
		c.Rope.Theta = outer
	}
	s.has("partial_rotary_factor")
	s.has("attention_factor")
	c.parseRopeType(s, ropeDefaults{yarn: true})
	if c.Rope.Type == RopeYaRN {
		c.Rope.MScale, c.Rope.MScaleAll = 1, 1
	}
	if left := s.unread(nil); len(left) > 0 && s != f {
		s.fail(left[0][len(s.path):], "", "this rotary option is not known")
	}
	return c.Rope
}

// parseHyper reads the residual streams.
func (c *Config) parseHyper(f *fields) {
	c.Streams = Streams{
		Count: f.integer("hc_mult", 1, maxHyper),
		Iters: f.integer("hc_sinkhorn_iters", 1, 1000),
		Eps:   f.number("hc_eps", 0, 1),
	}
}

// maxHyper bounds these streams, as kernels.MaxStreams does.
const maxHyper = 8

// parsePooledMoE reads the mixture of DeepSeek-V4, which every layer is.
func (c *Config) parsePooledMoE(f *fields) {
	c.MoE = MoE{
		Experts:  f.expertCount("n_routed_experts"),
		PerToken: f.integer("num_experts_per_tok", 1, maxExperts),
		Size:     f.integer("moe_intermediate_size", 1, maxWidth),
		Score:    Score(f.text("scoring_func", string(SqrtSoftplus))), Groups: 1, KeptGroups: 1, Scale: 1,
		Normalize: f.boolean("norm_topk_prob", true),
	}
	if c.MoE.Score != SqrtSoftplus && c.MoE.Score != SigmoidTopK {
		f.fail("scoring_func", strconv.Quote(string(c.MoE.Score)), "known are sqrtsoftplus, sigmoid")
	}
	if name := f.text("topk_method", "noaux_tc"); name != "noaux_tc" {
		f.fail("topk_method", strconv.Quote(name), "experts must be chosen by noaux_tc")
	}
	shared, ok := f.optInteger("n_shared_experts", 1, maxExperts)
	if ok && shared != 1 {
		f.fail("n_shared_experts", strconv.Itoa(shared), "one expert is for all tokens (1)")
	}
	c.MoE.SharedSize = c.MoE.Size
	if v, ok := f.optNumber("routed_scaling_factor", 0, 1e6); ok {
		c.MoE.Scale = v
	}
	if v, ok := f.optNumber("swiglu_limit", 0, 1e6); ok {
		c.MoE.Limit = v
	}
	c.Sparse = slices.Repeat([]bool{true}, c.NumLayers)
}

// hashLayers reads which layers take a token's experts from a table: the first
// num_hash_layers, or those that mlp_layer_types names.
func (c *Config) hashLayers(f *fields) {
	c.MoE.Hash = make([]bool, c.NumLayers)
	var kinds []string
	if !f.decode("mlp_layer_types", &kinds, "a list of strings") {
		n, ok := f.optInteger("num_hash_layers", 0, maxLayers)
		if !ok {
			n = 3
		}
		for i := range c.MoE.Hash {
			c.MoE.Hash[i] = i < n
		}
		return
	}
	f.has("num_hash_layers")
	if len(kinds) != c.NumLayers {
		f.fail("mlp_layer_types", fmt.Sprintf("a list of %d", len(kinds)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	for i, k := range kinds {
		if k != "hash_moe" && k != "moe" {
			f.fail(fmt.Sprintf("mlp_layer_types[%d]", i), strconv.Quote(k), "known are hash_moe, moe")
		}
		c.MoE.Hash[i] = k == "hash_moe"
	}
}

// pooledJSON adds the keys of DeepSeek-V4, in the layout of transformers.
func (c Config) pooledJSON(out map[string]any) {
	p := c.Pooled
	if p.Window == 0 {
		return
	}
	out["q_lora_rank"], out["qk_rope_head_dim"], out["o_groups"], out["o_lora_rank"] = p.QRank, p.Rope, p.OGroups, p.ORank
	out["sliding_window"], out["num_nextn_predict_layers"] = p.Window, c.MTPLayers
	out["index_n_heads"], out["index_head_dim"], out["index_topk"] = c.Index.Heads, c.Index.Dim, c.Index.TopK
	out["hc_mult"], out["hc_sinkhorn_iters"], out["hc_eps"] = c.Streams.Count, c.Streams.Iters, c.Streams.Eps
	kinds, rates, feeds := make([]LayerKind, c.NumLayers), map[LayerKind]int{}, make([]string, c.NumLayers)
	for i, n := range p.Ratios {
		if c.Pooled.Share != nil {
			break
		}
		switch {
		case n == 0:
			kinds[i] = slidingLayer
		case p.Overlap[i]:
			kinds[i], rates[sparseLayer] = sparseLayer, n
		default:
			kinds[i], rates[heavyLayer] = heavyLayer, n
		}
		if feeds[i] = "moe"; c.MoE.Hash[i] {
			feeds[i] = "hash_moe"
		}
	}
	out["layer_types"], out["compress_rates"], out["mlp_layer_types"] = kinds, rates, feeds
	out["rope_parameters"] = map[string]any{"main": pooledRopeJSON(c.Rope), "compress": pooledRopeJSON(p.GroupRope)}
	out["n_routed_experts"], out["num_experts_per_tok"], out["moe_intermediate_size"] = c.MoE.Experts, c.MoE.PerToken, c.MoE.Size
	out["scoring_func"], out["routed_scaling_factor"], out["n_shared_experts"] = c.MoE.Score, c.MoE.Scale, 1
	if c.MoE.Limit > 0 {
		out["swiglu_limit"] = c.MoE.Limit
	}
	if p.Share != nil {
		c.sharedJSON(out)
	}
}

func pooledRopeJSON(r Rope) map[string]any {
	out := map[string]any{"rope_type": r.Type, "rope_theta": r.Theta}
	if r.Type == RopeYaRN {
		out["factor"], out["original_max_position_embeddings"] = r.Factor, r.OriginalSize
		out["beta_fast"], out["beta_slow"] = r.BetaFast, r.BetaSlow
	}
	return out
}
