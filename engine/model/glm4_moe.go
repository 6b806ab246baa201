package model

// GLM-4.5 to 4.7 (arXiv:2508.06471; transformers' Glm4MoeForCausalLM): grouped-query
// attention with biases on q, k and v, norms of q and k where the configuration
// says so, and a rotation of the first half of each head; from some layer on
// mixtures of experts with DeepSeek-V3's router and an expert that all rows get;
// an MTP layer behind the others drafts.
var glm4MoETraits = traits{shared: "shared_experts", mtp: nextMTP}
