package model

// GLM-5 to 5.3 (transformers' GlmMoeDsaForCausalLM): the arithmetic of DeepSeek-V3.2,
// without YaRN, where some layers take the choice of keys of the layer before them
// (arXiv:2603.12201). The rotary pairs of the index are interleaved. The MTP layer
// chooses for each of its drafts anew.
var glmMoEDSATraits = traits{shared: "shared_experts", mtp: nextMTP, indexPairs: true}
