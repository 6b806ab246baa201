package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Alike numbers the tokens by what they say (the compressed vocabulary of Engram,
// arXiv:2601.07372, as DeepSeek-V4.1 has it): tokens whose texts differ in case, accents,
// compatible forms of a rune or blanks have one number. Numbers are given in order of the
// first token. A token that is a part of a rune stands for itself. ids has an entry for
// each id below VocabSize, and n is the count of numbers.
func (t *Tokenizer) Alike() (ids []int32, n int) {
	numbers := map[string]int32{}
	ids = make([]int32, t.VocabSize())
	for id := range ids {
		text := t.Decode([]int32{int32(id)}, false)
		key := plain(text)
		switch {
		case strings.ContainsRune(text, unicode.ReplacementChar):
			key = t.Spelling(int32(id))
		case key == "":
			key = text
		}
		number, ok := numbers[key]
		if !ok {
			number = int32(len(numbers))
			numbers[key] = number
		}
		ids[id] = number
	}
	return ids, len(numbers)
}

// plain takes from a text what Alike looks past.
func plain(text string) string {
	var out strings.Builder
	blank := false
	for _, r := range norm.NFD.String(norm.NFKC.String(text)) {
		if unicode.Is(unicode.M, r) {
			continue
		}
		if was := blank; r == ' ' || r == '\t' || r == '\r' || r == '\n' {
			if blank = true; !was {
				out.WriteByte(' ')
			}
			continue
		}
		blank = false
		out.WriteRune(unicode.ToLower(r))
	}
	s := out.String()
	if s == " " { // a token of blanks alone is a blank
		return s
	}
	// The reference has this rune of the private use area stand for such a token.
	return strings.ReplaceAll(strings.TrimFunc(s, unicode.IsSpace), "\ue000", " ")
}
