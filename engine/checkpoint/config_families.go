package checkpoint

import (
	"fmt"
	"strconv"
)

// parseLlama reads the fields of Llama 2 and 3 and SmolLM2.
func parseLlama(f *fields, c *Config) {
	kv, ok := f.optInteger("num_key_value_heads", 1, maxHeads)
	if !ok {
		kv = c.NumHeads
	}
	c.kvHeads(f, kv)
	c.headDim(f)
	c.fullLayers(f)
	c.parseRope(f, ropeDefaults{theta: 10000, partial: 1})
}

// headDim reads head_dim, or takes the share of the width that a head has.
func (c *Config) headDim(f *fields) {
	var ok bool
	if c.HeadDim, ok = f.optInteger("head_dim", 1, maxHeadDim); !ok && c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			f.fail("num_attention_heads", strconv.Itoa(c.NumHeads), fmt.Sprintf("it must divide hidden_size, which is %d, as head_dim is not given", c.HiddenSize))
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
}

// parseQwen3 reads the fields of dense Qwen3.
func parseQwen3(f *fields, c *Config) {
	c.kvHeads(f, f.integer("num_key_value_heads", 1, maxHeads))
	c.HeadDim = f.integer("head_dim", 1, maxHeadDim)
	c.fullLayers(f)
	c.parseRope(f, ropeDefaults{partial: 1})
}

// parseQwen3MoE reads the fields of Qwen3-MoE.
func parseQwen3MoE(f *fields, c *Config) {
	c.kvHeads(f, f.integer("num_key_value_heads", 1, maxHeads))
	c.headDim(f)
	c.fullLayers(f)
	c.parseRope(f, ropeDefaults{partial: 1})
	c.parseQwenMoE(f, false)
	c.experts(f)
}

// parseGLM4MoE reads the fields of GLM-4.5 to 4.7.
func parseGLM4MoE(f *fields, c *Config) {
	c.kvHeads(f, f.integer("num_key_value_heads", 1, maxHeads))
	c.headDim(f)
	c.fullLayers(f)
	c.QKVBias = f.boolean("attention_bias", false)
	c.QKNorm = f.boolean("use_qk_norm", false)
	c.MTPLayers, _ = f.optInteger("num_nextn_predict_layers", 0, maxLayers)
	c.parseRope(f, ropeDefaults{theta: 10000, partial: 0.5})
	c.parseNoAux(f)
	c.experts(f)
}

// parseQwen35MoE reads the fields of the Qwen3.5 hybrid with a mixture of experts,
// and those of Qwen3-Next, which are the same.
func parseQwen35MoE(f *fields, c *Config) {
	parseQwen35(f, c)
	c.parseSharedMoE(f)
	c.experts(f)
}

// parseQwen35 reads the fields of the Qwen3.5 hybrid, text part.
func parseQwen35(f *fields, c *Config) {
	c.parseHybrid(f)
	c.layerTypes(f, FullAttention, LinearAttention)
	c.parseGDN(f)
	c.parseRope(f, ropeDefaults{partial: 0.25, mrope: true})
}

// parseHybrid reads full attention and which layers have it.
func (c *Config) parseHybrid(f *fields) {
	c.kvHeads(f, f.integer("num_key_value_heads", 1, maxHeads))
	c.HeadDim = f.integer("head_dim", 1, maxHeadDim)
	c.AttnOutputGate = f.boolean("attn_output_gate", true)
	c.MTPLayers, _ = f.optInteger("mtp_num_hidden_layers", 0, maxLayers)

	every, ok := f.optInteger("full_attention_interval", 1, maxLayers)
	if !ok {
		every = 4
	}
	c.LayerTypes = make([]LayerKind, c.NumLayers)
	for i := range c.LayerTypes {
		c.LayerTypes[i] = LinearAttention
		if (i+1)%every == 0 {
			c.LayerTypes[i] = FullAttention
		}
	}
}

// parseGDN reads the Gated DeltaNet layers.
func (c *Config) parseGDN(f *fields) {
	gdn := GDN{
		NumKHeads:  f.integer("linear_num_key_heads", 1, maxHeads),
		NumVHeads:  f.integer("linear_num_value_heads", 1, maxHeads),
		KDim:       f.integer("linear_key_head_dim", 1, maxHeadDim),
		VDim:       f.integer("linear_value_head_dim", 1, maxHeadDim),
		ConvKernel: f.integer("linear_conv_kernel_dim", 1, maxConv),
		OutputGate: outputGate(f),
	}
	if gdn.NumKHeads > 0 && gdn.NumVHeads%gdn.NumKHeads != 0 {
		f.fail("linear_num_value_heads", strconv.Itoa(gdn.NumVHeads), fmt.Sprintf("it must be a multiple of linear_num_key_heads, which is %d", gdn.NumKHeads))
	}
	if c.Has(LinearAttention) {
		c.GDN = gdn
	}
}

// outputGate reads the activation of the gate behind the GDN norm:
// output_gate_type, or else hidden_act; "swish" is another name of SiLU.
func outputGate(f *fields) Activation {
	name := f.text("output_gate_type", f.text("hidden_act", string(SiLU)))
	switch name {
	case "silu", "swish":
		return SiLU
	case "sigmoid":
		return Sigmoid
	}
	f.fail("output_gate_type", strconv.Quote(name), "known are silu, swish, sigmoid")
	return ""
}
