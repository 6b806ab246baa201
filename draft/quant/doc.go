// Package quant makes draft heads of 4 bits.
//
// A draft head may be wrong at no price but speed, since the target verifies every
// token; so its matrices can be rounded hard, and a draft step, which waits for
// weights, reads a quarter of the bytes. Weights are kernels.Int4: groups of 32, 64 or
// 128 columns with a BF16 scale and, if asked for, a zero point.
//
// Two methods choose the numbers. [RoundToNearest] takes the scale from the largest
// weight of a group. [GPTQ] (Frantar et al. 2022, arXiv:2210.17323) knows what the
// matrix multiplies: it goes through the columns in order, spreads the error of each
// over the columns to come, as the inverse of the inputs' second moments says, and
// picks the scale of each group by the error that it makes there. A [Recorder] gathers
// those moments from the engine: a backend that passes everything on and, while a
// drafter works, adds up the inputs of each product, as drafting sees them (passes over
// committed rows, and the head's own hidden states further out).
//
// AWQ (Lin et al. 2024, arXiv:2306.00978) would scale the columns of large inputs up
// before rounding. It needs a place for the inverse scale: the norm before a matrix, which
// the attention's and the MLP's outputs don't have, and which several matrices share. GPTQ
// spreads errors by the same moments without one, and the format stays plain.
//
// Any kind of head can be made: of an MTP module, EAGLE, EAGLE-3, Medusa, DFlash and DSpark, each
// with the tensors' names and the config.json of the BF16 head. It may bring an LM head of its own
// over the tokens that are most frequent in a text ([Frequent]); the tensor d2t (of Medusa:
// token_map) says which. [Head] has the tensors and writes the directory: config.json and
// model.safetensors, where a matrix X of 4 bits is X (U8 [rows, columns/2], the even column
// in the low half of a byte), X_scale (BF16 [rows, columns/group]) and X_zero (U8, where not
// symmetric). What rows are gathered from (embed_tokens, markov_w1) keeps its 16 bits.
package quant
