package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// MLA is the shape of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434).
type MLA struct {
	QRank  int // width of the latent that queries are made of; 0: of the hidden state
	KVRank int // width of the latent that keys and values are made of
	Nope   int // channels of a query or key that are not rotated
	Rope   int // and that are, even; of keys the same ones for all heads
	V      int // width of a head's values
}

// parseMLA reads latent attention. The rotary embedding is of its rotated channels.
func (c *Config) parseMLA(f *fields) {
	c.MLA = MLA{
		KVRank: f.integer("kv_lora_rank", 1, maxWidth),
		Nope:   f.integer("qk_nope_head_dim", 1, maxHeadDim),
		Rope:   f.integer("qk_rope_head_dim", 2, maxHeadDim),
		V:      f.integer("v_head_dim", 1, maxHeadDim),
	}
	c.MLA.QRank, _ = f.optInteger("q_lora_rank", 1, maxWidth)
	if c.MLA.Rope%2 != 0 {
		f.fail("qk_rope_head_dim", strconv.Itoa(c.MLA.Rope), "it must be an even number of channels")
	}
	if c.MLA.Nope%2 != 0 || c.MLA.KVRank%2 != 0 {
		f.fail("kv_lora_rank", strconv.Itoa(c.MLA.KVRank), fmt.Sprintf("it and qk_nope_head_dim, which is %d, must be even", c.MLA.Nope))
	}
	c.NumKVHeads = c.NumHeads
	f.used["num_key_value_heads"], f.used["head_dim"], f.used["qk_head_dim"] = true, true, true
	c.HeadDim = c.MLA.Rope
	if !f.boolean("rope_interleave", true) {
		f.fail("rope_interleave", "false", "the rotary pairs of latent attention must be interleaved (true)")
	}
	c.latentLayers(f)
	c.parseRope(f, ropeDefaults{theta: 10000, partial: 1, yarn: true})
	c.HeadDim = c.MLA.Nope + c.MLA.Rope
}

// Index is the shape of what chooses the keys of sparse attention (DeepSeek-V3.2).
type Index struct {
	Heads int    // query heads of the index
	Dim   int    // width of its keys
	TopK  int    // keys that a token attends to
	Own   []bool // by layer, whether it chooses itself; the others take the choice of the one before
	Ratio int    // keys of a block where blocks are chosen (Qwen4Exp); 0: keys are
	// ShareMTP says that the MTP module chooses for the first draft alone, and that
	// those behind it see the same keys.
	ShareMTP bool
}

// parseIndex reads the index of latent attention.
func (c *Config) parseIndex(f *fields) {
	c.Index = Index{
		Heads: f.integer("index_n_heads", 1, maxHeads),
		Dim:   f.integer("index_head_dim", 2, maxHeadDim),
		TopK:  f.integer("index_topk", 1, maxPositions),
		Own:   slices.Repeat([]bool{true}, c.NumLayers),
	}
	if c.Index.Dim%2 != 0 || c.Index.Dim < c.MLA.Rope {
		f.fail("index_head_dim", strconv.Itoa(c.Index.Dim), fmt.Sprintf("it must be even and at least qk_rope_head_dim, which is %d", c.MLA.Rope))
	}
	f.used["indexer_rope_interleave"] = true
	c.Index.ShareMTP = f.boolean("index_share_for_mtp_iteration", false)
}

// parseSharedIndex reads which layers choose themselves: a list of their types, a
// pattern, or every so many layers from one on.
func (c *Config) parseSharedIndex(f *fields) {
	every, _ := f.optInteger("index_topk_freq", 1, maxLayers)
	from, ok := f.optInteger("index_skip_topk_offset", 0, maxLayers)
	if !ok {
		from = 2
	}
	for i := range c.Index.Own {
		c.Index.Own[i] = max(i-from+1, 0)%max(every, 1) == 0
	}
	kinds := []string{}
	if pattern := f.raw("index_topk_pattern"); pattern != nil {
		var letters string
		if json.Unmarshal(pattern, &letters) == nil {
			for _, l := range letters {
				kinds = append(kinds, map[rune]string{'F': "full", 'S': "shared"}[l])
			}
		} else {
			f.decode("index_topk_pattern", &kinds, "letters F and S, or a list of full and shared")
		}
	}
	if !f.decode("indexer_types", &kinds, "a list of strings") && len(kinds) == 0 {
		return
	}
	if len(kinds) != c.NumLayers {
		f.fail("indexer_types", fmt.Sprintf("a list of %d", len(kinds)), fmt.Sprintf("it must have an entry for each of num_hidden_layers = %d layers", c.NumLayers))
		return
	}
	for i, k := range kinds {
		if k != "full" && k != "shared" || i == 0 && k == "shared" {
			f.fail(fmt.Sprintf("indexer_types[%d]", i), strconv.Quote(k), "known are full, shared, and the first must be full")
		}
		c.Index.Own[i] = k == "full"
	}
}

// parseDeepseekV32 reads the fields of DeepSeek-V3.2.
func parseDeepseekV32(f *fields, c *Config) {
	parseDeepseekV3(f, c)
	c.needRank(f)
	c.parseIndex(f)
}

// parseGLMMoEDSA reads the fields of GLM-5.
func parseGLMMoEDSA(f *fields, c *Config) {
	parseDeepseekV32(f, c)
	c.parseSharedIndex(f)
}

// needRank fails where queries have no latent, of which those of the index are made.
func (c *Config) needRank(f *fields) {
	if c.MLA.QRank == 0 {
		f.fail("q_lora_rank", "", fmt.Sprintf("it must be an integer from 1 to %d", maxWidth))
	}
}

// latentLayers takes every layer for full attention: newer versions of transformers
// write layer types of their own for latent and sparse attention.
func (c *Config) latentLayers(f *fields) {
	const sparse LayerKind = "deepseek_sparse_attention"
	c.LayerTypes = make([]LayerKind, c.NumLayers)
	c.layerTypes(f, FullAttention, sparse)
	for i := range c.LayerTypes {
		c.LayerTypes[i] = FullAttention
	}
}

// AttentionScale is what scores are multiplied by.
func (c Config) AttentionScale() float64 {
	s := 1 / math.Sqrt(float64(c.HeadDim))
	if m := c.Rope.MScaleAll; c.Rope.Type == RopeYaRN && m != 0 {
		s *= yarnScale(c.Rope.Factor, m) * yarnScale(c.Rope.Factor, m)
	}
	return s
}

// VectorScale is what the cosines and sines of YaRN are multiplied by.
func (r Rope) VectorScale() float64 {
	if r.Type != RopeYaRN {
		return 1
	}
	if r.MScale != 0 && r.MScaleAll != 0 {
		return yarnScale(r.Factor, r.MScale) / yarnScale(r.Factor, r.MScaleAll)
	}
	return yarnScale(r.Factor, 1)
}

func yarnScale(factor, m float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*m*math.Log(factor) + 1
}

// parseYaRN reads the scaling of that name (arXiv:2309.00071).
func (c *Config) parseYaRN(s *fields) {
	r := &c.Rope
	r.Type = RopeYaRN
	r.Factor = s.number("factor", 0, 1e6)
	r.OriginalSize = s.integer("original_max_position_embeddings", 1, maxPositions)
	r.BetaFast, r.BetaSlow = 32, 1
	for key, dst := range map[string]*float64{"beta_fast": &r.BetaFast, "beta_slow": &r.BetaSlow, "mscale": &r.MScale, "mscale_all_dim": &r.MScaleAll} {
		if v, ok := s.optNumber(key, 0, 1e6); ok {
			*dst = v
		}
	}
	if r.BetaFast <= r.BetaSlow {
		s.fail("beta_fast", strconv.FormatFloat(r.BetaFast, 'g', -1, 64), fmt.Sprintf("it must be above beta_slow, which is %g", r.BetaSlow))
	}
}

// parseDeepseekV3 reads the fields of DeepSeek-V3.
func parseDeepseekV3(f *fields, c *Config) {
	c.parseMLA(f)
	c.MTPLayers, _ = f.optInteger("num_nextn_predict_layers", 0, maxLayers)
	c.parseNoAux(f)
	c.experts(f)
}

// mlaJSON adds the keys of latent attention.
func (c Config) mlaJSON(out, rope map[string]any) {
	if c.MLA.KVRank == 0 {
		return
	}
	delete(out, "head_dim")
	out["kv_lora_rank"], out["qk_nope_head_dim"], out["qk_rope_head_dim"], out["v_head_dim"] = c.MLA.KVRank, c.MLA.Nope, c.MLA.Rope, c.MLA.V
	out["num_nextn_predict_layers"] = c.MTPLayers
	if c.MLA.QRank > 0 {
		out["q_lora_rank"] = c.MLA.QRank
	}
	if x := c.Index; x.Heads > 0 {
		out["index_n_heads"], out["index_head_dim"], out["index_topk"] = x.Heads, x.Dim, x.TopK
		if x.ShareMTP {
			out["index_share_for_mtp_iteration"] = true
		}
		kinds := make([]string, len(x.Own))
		for i, own := range x.Own {
			if kinds[i] = "shared"; own {
				kinds[i] = "full"
			}
		}
		if c.Family == GLMMoEDSA {
			out["indexer_types"] = kinds
		}
	}
	if c.Rope.Type != RopeYaRN {
		return
	}
	rope["factor"], rope["original_max_position_embeddings"] = c.Rope.Factor, c.Rope.OriginalSize
	rope["beta_fast"], rope["beta_slow"] = c.Rope.BetaFast, c.Rope.BetaSlow
	if c.Rope.MScale != 0 {
		rope["mscale"] = c.Rope.MScale
	}
	if c.Rope.MScaleAll != 0 {
		rope["mscale_all_dim"] = c.Rope.MScaleAll
	}
}
