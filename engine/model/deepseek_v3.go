package model

// DeepSeek-V3 and R1 (arXiv:2412.19437; transformers' DeepseekV3ForCausalLM): latent
// attention with YaRN; from some layer on mixtures of experts, chosen within the
// best groups by sigmoid and a bias, with one that all rows get; an MTP layer behind
// the others drafts.
var deepseekV3Traits = traits{shared: "shared_experts", mtp: nextMTP}
