package checkpoint

import (
	"fmt"
	"slices"
)

// refusal is a key that changes the arithmetic in a way the engine lacks,
// unless its value is one of those that mean "off".
type refusal struct {
	key string
	off []string // JSON texts, besides null and absent
	why string
}

var (
	offFalse = []string{"false"}
	offZero  = []string{"0", "0.0"}
	offOne   = []string{"1", "1.0"}
	offNone  = []string{"[]", "{}"}
)

// refusals is sorted by theme; each is an error rather than a wrong answer.
var refusals = []refusal{
	{"attention_bias", offFalse, "biases in attention are not supported"},
	{"mlp_bias", offFalse, "biases in the MLP are not supported"},
	{"qkv_bias", offFalse, "biases in attention are not supported"},
	{"hidden_act", []string{`"silu"`, `"swish"`}, "the MLP must be SwiGLU (silu)"},

	{"use_sliding_window", offFalse, "sliding-window attention is not supported"},
	{"attention_chunk_size", nil, "chunked attention is not supported"},
	{"is_causal", []string{"true"}, "attention must be causal"},
	{"rope_interleaved", offFalse, "rotary pairs must be half-split"},
	{"no_rope_layers", offNone, "layers without rotary embedding are not supported"},
	{"no_rope_layer_interval", offZero, "layers without rotary embedding are not supported"},

	{"num_experts", offZero, "mixture-of-experts models are not supported"},
	{"num_local_experts", offZero, "mixture-of-experts models are not supported"},
	{"n_routed_experts", offZero, "mixture-of-experts models are not supported"},
	{"num_experts_per_tok", offZero, "mixture-of-experts models are not supported"},
	{"moe_intermediate_size", offZero, "mixture-of-experts models are not supported"},
	{"shared_expert_intermediate_size", offZero, "mixture-of-experts models are not supported"},

	{"attn_logit_softcapping", offZero, "capped scores are not supported"},
	{"final_logit_softcapping", offZero, "capped logits are not supported"},
	{"embedding_multiplier", offOne, "scaled embeddings are not supported"},
	{"residual_multiplier", offOne, "scaled residuals are not supported"},
	{"attention_multiplier", nil, "scores must be scaled by head_dim^-0.5"},
	{"logits_scaling", offOne, "scaled logits are not supported"},

	{"mamba_ssm_dtype", []string{`"float32"`}, "recurrent states are kept in float32"},
	{"mtp_use_dedicated_embeddings", offFalse, "the MTP head shares the embeddings of the trunk"},
	{"mlp_only_layers", offNone, "mixture-of-experts models are not supported"},
	{"is_encoder_decoder", offFalse, "only decoders are supported"},
}

// refuseUnsupported fails on each feature that the engine lacks; has lists keys that
// the family reads itself.
func refuseUnsupported(f *fields, has []string) {
	for _, r := range refusals {
		if slices.Contains(has, r.key) {
			continue
		}
		v := f.raw(r.key)
		if v == nil || isOff(string(v), r.off) {
			continue
		}
		f.fail(r.key, string(v), r.why+allowed(r.off))
	}
	// Llama-like configs carry sliding_window without a switch; those of Qwen
	// carry the size even where the switch is off.
	if v := f.raw("sliding_window"); v != nil && !f.has("use_sliding_window") && !slices.Contains(has, "sliding_window") {
		f.fail("sliding_window", string(v), "sliding-window attention is not supported (null or use_sliding_window false would be right)")
	}
}

func isOff(v string, off []string) bool {
	for _, o := range off {
		if v == o || sameJSON([]byte(v), []byte(o)) {
			return true
		}
	}
	return false
}

func allowed(off []string) string {
	if len(off) == 0 || off[0] == "[]" {
		return " (null would be right)"
	}
	return fmt.Sprintf(" (%s would be right)", off[0])
}

// harmless holds the keys that do not change what a model computes: training,
// precision of the file, the vision part, habits of the publishing library.
var harmless = keySet(
	"architectures", "model_type", "transformers_version", "torch_dtype", "dtype",
	"initializer_range", "use_cache", "pretraining_tp", "attention_dropout", "hidden_dropout",
	"pad_token_id", "unk_token_id", "sep_token_id", "name_or_path", "return_dict", "output_attentions",
	"output_hidden_states", "max_window_layers", "tokenizer_class", "is_llama_config", "transformers.js_config",
	"vision_config", "image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id",
	"language_model_only", "chunk_size_feed_forward", "is_decoder", "add_cross_attention", "id2label", "label2id",
	"problem_type", "cross_attention_hidden_size", "decoder_start_token_id", "decoder_sparse_step", "router_aux_loss_coef",
	"output_router_logits", "norm_topk_prob", "number_of_conv_states",
)

func keySet(keys ...string) map[string]bool {
	set := map[string]bool{}
	for _, k := range keys {
		set[k] = true
	}
	return set
}
