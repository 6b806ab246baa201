// Package model turns checkpoints into forward passes.
//
// A family (llama.go, qwen3_5.go, deepseek_v3.go and so on; families.go lists them)
// says in one file what distinguishes it; what blocks are made of exists once and is
// shared by the trunk and by draft modules such as the MTP head: grouped-query
// attention and Gated DeltaNet (block.go), latent attention (mla.go), the index of
// sparse attention (index.go), MLPs and mixtures of experts (feed.go). Everything is written against kernels.Backend: a model owns
// weight handles and activation handles, and Forward records operations over
// them. It holds no host pointer, allocates nothing while it records, and has
// one path: prefill chunks, decode steps and verifications are spans of the
// batch and nothing else distinguishes them.
//
// Parameters come from a Source: a checkpoint on disk or in the binary, or
// Random, which makes weights of a given shape from a seed for measurements of
// speed (Shapes lists the shapes known by name).
package model
