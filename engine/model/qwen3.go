package model

// Qwen3 dense (arXiv:2505.09388; transformers' Qwen3ForCausalLM): Llama with
// plain RMS norms over each head of q and k before the rotation, and an
// explicit head width.
var qwen3Traits = traits{qkNorm: true}
