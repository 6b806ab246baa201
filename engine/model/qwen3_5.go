package model

// Qwen3.5 text models (transformers' Qwen3_5ForCausalLM): three Gated DeltaNet
// layers to one full-attention layer with an output gate and a rotation of the
// first quarter of each head; norms multiply by 1 + w; an MTP layer drafts.
var qwen35Traits = traits{centered: true, qkNorm: true, mtp: qwenMTP}
