package model

// Llama 2 and 3 and SmolLM2 (ai@meta 2024, arXiv:2407.21783; names and
// equations as in transformers' LlamaForCausalLM): plain RMS norms, rotary
// embedding over the whole head, grouped-query attention without biases.
var llamaTraits = traits{}
