package model

// Qwen3.5 with a mixture of experts (transformers' Qwen3_5MoeForCausalLM;
// Qwen3.6-35B-A3B): Qwen3.5 whose MLPs are mixtures, chosen by softmax, with one
// gated expert that all rows get. The files stack the experts of a layer.
var qwen35MoETraits = traits{centered: true, qkNorm: true, shared: "shared_expert", mtp: qwenMTP}
