// Package registry resolves what a user writes after --model into an opened
// model: its parameters, its tokenizer and the prompts that come with it.
//
// Five forms are known: "embedded", the model inside the binary;
// "random:SHAPE", made-up weights of a known shape (see model.ShapeNames) for
// measurements of speed, without a tokenizer; a directory with config.json; a GGUF
// file; and the id of a model in the cache of the Hugging Face libraries (package hub).
package registry
