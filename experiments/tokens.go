package experiments

import (
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/tokenizer"
)

// Tokens returns the vocabulary that grammars work on: the bytes of the first
// vocab ids, special tokens without any, and the ids that end a text. It is nil
// without a tokenizer.
func Tokens(t *tokenizer.Tokenizer, vocab int, end []int32) *grammar.Vocabulary {
	if t == nil {
		return nil
	}
	tokens := make([][]byte, vocab)
	for id := range tokens {
		if id := int32(id); t.Known(id) && !t.IsSpecial(id) {
			tokens[id] = t.TokenBytes(id)
		}
	}
	return grammar.NewVocabulary(tokens, end)
}
