// Package registry resolves what a user writes after --model into an opened
// model: its parameters, its tokenizer and the prompts that come with it.
//
// Four forms are known: "embedded", the model inside the binary;
// "random:SHAPE", made-up weights of a known shape (see model.ShapeNames) for
// measurements of speed, without a tokenizer; a directory with config.json; and a
// GGUF file.
package registry
