// Package embedded carries the small model that ships inside the exacta binary, so that a decode can be seen and a
// speculative-decoding experiment run with nothing fetched from anywhere.
//
// The model is a Qwen3.5-type hybrid (Gated DeltaNet and gated full attention, dense MLP, tied embeddings) with one MTP
// layer, in BF16, in the folder layout that Hugging Face models have: config.json, generation_config.json,
// model.safetensors, tokenizer.json, tokenizer_config.json. Beside them lie prompts.jsonl, 48 cuts of Go files from modules
// that were not in training, and MODEL_CARD.md with the figures. It is deep and narrow with a small vocabulary, so that one
// draft (the MTP layer and the LM head) reads at most 0.14 of the bytes of a step of the trunk.
//
// The folder heads has draft heads that were trained for it: EAGLE-3, Medusa, DFlash and DSpark, each in the layout in which such heads
// are published, so that strategies that need one work with nothing fetched either; and mtp-int4, the MTP layer with an LM head
// of its own in 4 bits, which `exacta quantize` made (make head4) and `head: model:mtp-int4` names.
//
// FS returns the folder as a file system. The engine reads it exactly as it reads a folder on disk: nothing in this package
// knows about tensors. A binary built with the tag `noembed` leaves the assets out, and FS then returns an error that says so.
//
// The folder train holds the Python programs that built the corpus, the tokenizer and the weights, with the list of modules
// and their licences; none of it is needed to build or to run exacta.
package embedded
