package tokenizer

import "unicode/utf8"

// byteRune spells each byte as the printable rune that byte-level
// vocabularies use for it (GPT-2's table): printable Latin-1 stands for itself,
// the other bytes are numbered from U+0100 on.
var byteRune = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		switch r := rune(b); {
		case r >= '!' && r <= '~', r >= 0xa1 && r <= 0xac, r >= 0xae:
			table[b] = r
		default:
			table[b] = next
			next++
		}
	}
	return table
}()

// runeByte is the inverse of byteRune; -1 for runes that spell no byte.
var runeByte = func() (table [0x144]int16) {
	for i := range table {
		table[i] = -1
	}
	for b, r := range byteRune {
		table[r] = int16(b)
	}
	return table
}()

// unspell gives the bytes that a token's spelling stands for. A token with any
// rune that spells no byte stands for its own text, as in the reference's
// decoder; ok is false then.
func unspell(token string) (text string, ok bool) {
	out := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return token, false
		}
		out = append(out, byte(runeByte[r]))
	}
	return string(out), true
}

// spell is the inverse of unspell for text that is bytes.
func spell(text string) string {
	out := make([]byte, 0, 2*len(text))
	for i := range len(text) {
		out = utf8.AppendRune(out, byteRune[text[i]])
	}
	return string(out)
}
