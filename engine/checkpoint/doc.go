// Package checkpoint reads model checkpoints: a directory (or an fs.FS, for the
// model inside the binary) with config.json and the weights in safetensors
// files, one or many with an index; or a GGUF file of llama.cpp.
//
// # What a checkpoint is here
//
// Three things: a [Config], typed and checked; a set of named [Tensor] values
// that give their raw little-endian bytes without copying; and an identity,
// [Checkpoint.Hash], that records carry as provenance. On disk the weights are
// memory-mapped read-only, so opening a 54 GB checkpoint reads headers alone.
// What a tensor means is the business of the model packages: nothing here
// knows a layer.
//
// # Nothing is ignored in silence
//
// A reader of weights that guesses gives plausible, wrong numbers. So the
// header parser refuses every file whose parts do not account for every byte
// (overlap, hole, tail), and the config parser refuses each feature that the
// engine lacks (biases, sliding windows, experts, rope types that it does not
// know) by name, with what would be right. Keys that bear no meaning for
// inference are in a list; keys that are in no list are reported by
// Config.Unread. Tensors that are left out on purpose (the vision tower) are
// reported by [Checkpoint.Skipped].
//
// # Names
//
// The same decoder is spelled in several ways by its publishers. Names are
// normalised once, here (see [NormalName]): "language_model." is dropped,
// "model.mtp." becomes "mtp.", "model.visual." is skipped. Two tensors that
// normalise to one name are an error. Tensor.Source keeps the spelling of the
// file.
//
// # Weights of 8 and 4 bits
//
// FP8 and FP4 weights of safetensors files lie beside scales; they appear as tensors
// of BF16 that are expanded as they are read, or, after [Checkpoint.UseCache], as the
// tensors of a file that was written once.
//
// # GGUF files
//
// Such a file is read as the directory that it was made of: its metadata become the
// texts of config.json, tokenizer.json and tokenizer_config.json (with the chat
// template), its tensors get the names and the order of rows that they had, and the
// quantised ones are expanded to BF16 as they are read, a few rows at a time (see
// package gguf). An error names the file's own key.
//
// # Life of the bytes
//
// Tensor bytes point into the mapping: they are valid until
// [Checkpoint.Close], must not be written, and a file that is truncated by
// someone else while it is mapped faults the process, as with every mapping.
// A loader that repacks weights calls [Tensor.Discard] after each one, so that
// weights are never resident twice.
//
//	ck, err := checkpoint.Open("models/smollm2-135m")
//	if err != nil { ... }
//	defer ck.Close()
//	w, err := ck.Tensor("model.layers.0.mlp.up_proj.weight")
//	if err != nil { ... }
//	if err := w.CheckFinite(); err != nil { ... }
//
// The file format is that of https://github.com/huggingface/safetensors; the
// config keys are those of the transformers library.
package checkpoint
