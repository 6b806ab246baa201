// Package tokenizer turns text into token ids and back, as the tokenizer.json
// of a Hugging Face model says: BPE over bytes, with the pre-tokenizers of the
// Llama 3, Qwen, SmolLM2, GPT-2, GLM and DeepSeek families, and BPE over code
// points with byte fallback, as converted SentencePiece models have it (Llama 2,
// Gemma). SentencePiece vocabularies of GGUF files, whose merges follow from
// scores, are read as a tokenizer.json with a model of the type SentencePiece,
// which the reference does not have: like BPE, with a list of scores by id (null
// for what no merge makes) in place of the merges.
//
// # The steps of encoding
//
//  1. Added tokens (such as <|im_end|>) are cut out of the raw text, leftmost
//     first and the longest at each place.
//  2. The pieces between are normalised (NFC, NFKC, Lowercase, Strip, Prepend,
//     Replace, where the file asks for it), and the added tokens that match
//     normalised text are cut out.
//  3. A chain of stages cuts each piece into words, and may put the character
//     that stands for a space in. The regular expressions of the known families
//     use look-ahead, which Go's regexp lacks, so each is a hand-written
//     scanner, chosen by the text of the pattern.
//  4. Each word becomes its bytes, or its code points and the bytes of those
//     that the vocabulary lacks, and pairs of neighbours are merged: lowest rank
//     first, leftmost on ties, until no pair has a merge.
//  5. A template adds ids before and after (begin of text), when asked for.
//
// Step 4 scans for the best pair in short words and uses a heap in long ones,
// so that a megabyte without a split point costs n log n. A bounded cache
// keeps the ids of words. Where a model has no pre-tokenizer, words are cut
// between characters that no merge joins, which changes no ids.
//
// # What is refused
//
// tokenizer.json has many options, and one that is ignored gives plausible,
// wrong ids. [Load] therefore refuses by name whatever it does not implement:
// other models than these (no family that can be run here has one), other
// normalisers, unknown patterns, dropout, and so on. Truncation and padding are
// no part of what a text's ids are; [Tokenizer.Ignored] names them.
//
// # Text that is not UTF-8
//
// [Tokenizer.Encode] never fails: bytes that are no valid UTF-8 stand for
// themselves through the byte table or the byte tokens, and to the splitters
// each counts as a symbol. [Tokenizer.EncodeStrict] refuses such text with the
// place of the first bad byte, for requests from outside. Decoding joins the
// bytes of all tokens and replaces each maximal invalid part by one U+FFFD, as
// the reference does (Unicode, section 3.9, "Substitution of Maximal
// Subparts"); with byte fallback the reference's rule is another, one U+FFFD
// for each byte of a run of byte tokens that is not valid as a whole. A
// [Decoder] gives the same text as tokens arrive and never emits part of a
// rune.
//
// # The reference
//
// Ids are those of the Rust library (github.com/huggingface/tokenizers), those
// of scores the ones of the C++ library (github.com/google/sentencepiece);
// testdata holds what it gave, with its version, and the script that asked it.
// The reference mixes versions of Unicode (16 in patterns, 17 in Digits, 9 in
// NFC); the tables of this package were read off it for every code point, so
// that neither difference nor a new Go release moves ids.
package tokenizer
