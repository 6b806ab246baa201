package draft

import (
	"bytes"
	"fmt"

	"exacta.dev/exacta/engine/tokenizer"
)

// vocabulary is the tokens of a model.
type vocabulary struct {
	tok  *tokenizer.Tokenizer // nil where the model has no text
	size int                  // ids that may have a token
	name string
}

// differs says how a vocabulary differs from another; "" if it is the same: the same
// bytes for each id, or, where one has no text, as many ids.
func (v vocabulary) differs(o vocabulary) string {
	if v.tok != nil && o.tok != nil {
		for id := range int32(min(v.size, o.size)) {
			if a, b := v.tok.TokenBytes(id), o.tok.TokenBytes(id); !bytes.Equal(a, b) {
				return fmt.Sprintf("token %d is %q in %s and %q in %s", id, a, v.name, b, o.name)
			}
		}
	}
	if v.size != o.size {
		return fmt.Sprintf("%s has %d tokens, %s %d", v.name, v.size, o.name, o.size)
	}
	return ""
}

// words are the tables of trunk between a draft model's tokens and a target's.
type words struct{ inputs, outputs []int32 }

// identity gives the tables between equal vocabularies of tokens tokens. The models
// may have more ids, of nothing, which the draft model reads as token 0.
func identity(target, draft, tokens int) (w words) {
	if draft < target {
		w.inputs = make([]int32, target)
		for i := range min(draft, target) {
			w.inputs[i] = int32(i)
		}
	}
	if draft < tokens {
		w.outputs = w.inputs[:draft]
	}
	return w
}

// translate gives the tables between different vocabularies, by bytes; ids is the
// number of the target's ids. Where less than half of the target's tokens are the
// draft model's, drafting is of no use.
func translate(target, draft vocabulary, ids int) (w words, err error) {
	w = words{inputs: make([]int32, ids), outputs: make([]int32, draft.size)}
	theirs, ours := draft.byText(), target.byText()
	known, exact := 0, 0
	for id := range int32(target.size) {
		text := target.tok.TokenBytes(id)
		if len(text) == 0 {
			continue
		}
		known++
		for from := range text {
			if to, ok := theirs[string(text[from:])]; ok {
				if w.inputs[id] = to; from == 0 {
					exact++
				}
				break
			}
		}
	}
	for id := range w.outputs {
		text := draft.tok.TokenBytes(int32(id))
		for end := len(text); end > 0; end-- {
			if to, ok := ours[string(text[:end])]; ok {
				w.outputs[id] = to
				break
			}
		}
	}
	if 2*exact < known {
		return words{}, fmt.Errorf("translate: %d of the %d tokens of model %s are tokens of %s; at least half must be", exact, known, target.name, draft.name)
	}
	return w, nil
}

// byText gives the lowest id of each token's bytes.
func (v vocabulary) byText() map[string]int32 {
	ids := make(map[string]int32, v.size)
	for id := int32(v.size) - 1; id >= 0; id-- {
		if text := v.tok.TokenBytes(id); len(text) > 0 {
			ids[string(text)] = id
		}
	}
	return ids
}
