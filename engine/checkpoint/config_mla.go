package checkpoint

import (
	"fmt"
	"math"
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
func (c *Config) parseMLA(f *fields, needQRank bool) {
	c.MLA = MLA{
		KVRank: f.integer("kv_lora_rank", 1, maxWidth),
		Nope:   f.integer("qk_nope_head_dim", 1, maxHeadDim),
		Rope:   f.integer("qk_rope_head_dim", 2, maxHeadDim),
		V:      f.integer("v_head_dim", 1, maxHeadDim),
	}
	var ok bool
	if c.MLA.QRank, ok = f.optInteger("q_lora_rank", 1, maxWidth); !ok && needQRank {
		f.fail("q_lora_rank", "", fmt.Sprintf("it must be an integer from 1 to %d", maxWidth))
	}
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
	c.fullLayers(f)
	c.parseRope(f, ropeDefaults{theta: 10000, partial: 1, yarn: true})
	c.HeadDim = c.MLA.Nope + c.MLA.Rope
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
	c.parseMLA(f, false)
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
