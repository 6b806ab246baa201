// Package gguf reads the model files of llama.cpp: versions 2 and 3, little
// endian.
//
// A file is a table of typed metadata values, a table of tensors, and the data.
// [Parse] walks both tables over the bytes of the (mapped) file and checks them
// before anything is allocated that a number in the file asks for: counts against
// the bytes that are left, sizes for overflow, tensors against each other and the
// end of the file. Values and tensors are views of those bytes.
//
// Tensors are in blocks of 1, 32 or 256 elements along the last dimension, with
// scales in each block (see [Type]); [Type.Expand] gives their float32 values, to
// the last bit those of the reader in the Python package gguf, which testdata
// records.
//
// What a tensor is called, and which value says what of a model, is the business
// of package checkpoint.
//
// The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, the
// blocks: ggml-common.h in the same repository.
package gguf
