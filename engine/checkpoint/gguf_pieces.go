package checkpoint

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine/checkpoint/gguf"
)

// pieceSpace is what SentencePiece has for a space.
const pieceSpace = "\u2581"

// ggufPieces is what a file says of a SentencePiece vocabulary (tokenizer.ggml.model
// "llama"), as llama.cpp understands it: BPE by scores on the text as it is, a space
// before each piece of text between special and user-defined tokens, bytes for
// characters that are no pieces.
type ggufPieces struct {
	scores []float32
	prefix bool  // a space goes before
	unk    int64 // -1: none
}

func readPieces(f *gguf.File, tokens []string) (*ggufPieces, error) {
	p := &ggufPieces{prefix: true, unk: -1}
	var ok bool
	if p.scores, ok = f.Values["tokenizer.ggml.scores"].Float32s(); !ok || len(p.scores) != len(tokens) {
		return nil, fmt.Errorf("tokenizer.ggml.scores is not a list of %d float32, one for each token", len(tokens))
	}
	for id, s := range p.scores {
		if f := float64(s); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("tokenizer.ggml.scores: that of token %d is %v", id, s)
		}
	}
	if given, ok := f.Values["tokenizer.ggml.add_space_prefix"].Truth(); ok {
		p.prefix = given
	}
	for _, key := range []string{"remove_extra_whitespaces", "add_sep_token"} {
		if set, _ := f.Values["tokenizer.ggml."+key].Truth(); set {
			return nil, fmt.Errorf("tokenizer.ggml.%s is true; that is not supported", key)
		}
	}
	if f.Values["tokenizer.ggml.precompiled_charsmap"].N > 0 {
		return nil, fmt.Errorf("tokenizer.ggml.precompiled_charsmap is there; normalisation by it is not supported")
	}
	if id, ok := f.Values["tokenizer.ggml.unknown_token_id"].Integer(); ok && id >= 0 && id < int64(len(tokens)) {
		p.unk = id
	}
	return p, nil
}

// describe makes a tokenizer.json one of SentencePiece.
func (p *ggufPieces) describe(out component, v ggufVocab) {
	var unk any
	if p.unk >= 0 {
		unk = v.tokens[p.unk]
	}
	scores, bytes := make([]any, len(v.tokens)), false
	for id, kind := range v.kinds {
		if kind == ggufNormal || kind == ggufUser {
			scores[id] = p.scores[id]
		}
		bytes = bytes || kind == ggufByte
	}
	model := out["model"].(component)
	model["type"], model["scores"], model["unk_token"] = "SentencePiece", scores, unk
	model["byte_fallback"], model["fuse_unk"] = bytes, !bytes
	delete(model, "merges")
	replace := func(from, to string) component {
		return component{"type": "Replace", "pattern": component{"String": from}, "content": to}
	}
	steps := []component{replace(" ", pieceSpace)}
	decoders := []component{replace(pieceSpace, " "), {"type": "ByteFallback"}, {"type": "Fuse"}}
	if p.prefix {
		steps = append([]component{{"type": "Prepend", "prepend": pieceSpace}}, steps...)
		decoders = append(decoders, component{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	out["normalizer"] = component{"type": "Sequence", "normalizers": steps}
	out["pre_tokenizer"] = nil
	out["decoder"] = component{"type": "Sequence", "decoders": decoders}
}
