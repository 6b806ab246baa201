package model

// Qwen3-MoE (arXiv:2505.09388; transformers' Qwen3MoeForCausalLM): Qwen3 whose
// MLPs are mixtures of experts, chosen by softmax over all of them, with none
// that all rows get.
var qwen3MoETraits = traits{qkNorm: true}
