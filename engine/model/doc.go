// Package model turns checkpoints into forward passes.
//
// A family (llama.go, qwen3.go, qwen3_5.go) says in one file how a
// configuration becomes a list of decoder blocks; the block itself, with its
// two mixers (grouped-query attention, Gated DeltaNet) and its SwiGLU MLP,
// exists once in block.go and is shared by the trunk and by draft modules such
// as the MTP head. Everything is written against kernels.Backend: a model owns
// weight handles and activation handles, and Forward records operations over
// them. It holds no host pointer, allocates nothing while it records, and has
// one path: prefill chunks, decode steps and verifications are spans of the
// batch and nothing else distinguishes them.
//
// Parameters come from a Source: a checkpoint on disk or in the binary, or
// Random, which makes weights of a given shape from a seed for measurements of
// speed (Shapes lists the shapes known by name).
package model
