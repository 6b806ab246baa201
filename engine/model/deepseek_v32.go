package model

// DeepSeek-V3.2 (arXiv:2512.02556; transformers' DeepseekV32ForCausalLM): DeepSeek-V3
// whose layers each attend only to the keys that an index of their own chooses. The
// rotary pairs of the index are half-split.
var deepseekV32Traits = traits{shared: "shared_experts", mtp: nextMTP}
