package checkpoint

import "encoding/json"

// JSON writes the configuration as a flat config.json that ParseConfig reads
// back to the same value (Unread apart): for exported models and for shapes
// with random weights.
func (c Config) JSON() ([]byte, error) {
	rope := map[string]any{"rope_type": c.Rope.Type, "rope_theta": c.Rope.Theta, "partial_rotary_factor": c.Rope.PartialFactor}
	switch c.Rope.Type {
	case RopeLinear:
		rope["factor"] = c.Rope.Factor
	case RopeLlama3:
		rope["factor"] = c.Rope.Factor
		rope["low_freq_factor"] = c.Rope.LowFreq
		rope["high_freq_factor"] = c.Rope.HighFreq
		rope["original_max_position_embeddings"] = c.Rope.OriginalSize
	}
	out := map[string]any{
		"model_type": c.ModelType, "architectures": []string{c.Architecture},
		"hidden_size": c.HiddenSize, "intermediate_size": c.IntermediateSize,
		"num_hidden_layers": c.NumLayers, "num_attention_heads": c.NumHeads,
		"num_key_value_heads": c.NumKVHeads, "head_dim": c.HeadDim,
		"vocab_size": c.VocabSize, "max_position_embeddings": c.MaxPositions,
		"rms_norm_eps": c.RMSEps, "tie_word_embeddings": c.TieEmbeddings,
		"layer_types": c.LayerTypes, "rope_parameters": rope, "hidden_act": SiLU,
		"eos_token_id": c.EOS,
	}
	if c.BOS >= 0 {
		out["bos_token_id"] = c.BOS
	}
	if c.IntermediateSize == 0 {
		delete(out, "intermediate_size")
	}
	c.moeJSON(out)
	c.mlaJSON(out, rope)
	c.pooledJSON(out)
	if c.Family == GLM4MoE {
		out["attention_bias"], out["use_qk_norm"], out["num_nextn_predict_layers"] = c.QKVBias, c.QKNorm, c.MTPLayers
	}
	c.qwen4JSON(out)
	if c.Family == Qwen3_5 || c.Family == Qwen3_5MoE || c.Family == Qwen3Next || c.Family == Qwen4Exp {
		g := c.GDN
		if g == (GDN{}) {
			g = GDN{1, 1, 1, 1, 1, SiLU} // required keys, without a layer to use them
		}
		out["attn_output_gate"] = c.AttnOutputGate
		out["mtp_num_hidden_layers"] = c.MTPLayers
		out["linear_num_key_heads"], out["linear_num_value_heads"] = g.NumKHeads, g.NumVHeads
		out["linear_key_head_dim"], out["linear_value_head_dim"] = g.KDim, g.VDim
		out["linear_conv_kernel_dim"], out["output_gate_type"] = g.ConvKernel, g.OutputGate
	}
	return json.MarshalIndent(out, "", "  ")
}
