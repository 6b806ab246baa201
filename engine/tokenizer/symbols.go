package tokenizer

import (
	"fmt"
	"unicode/utf8"
)

// symbols gives the ids of a word before any merge.
type symbols interface {
	// append appends the ids of a word, which may be no valid UTF-8.
	append(ids []int32, word string) []int32
	// lacks gives the offset of the first place in text that no symbol stands
	// for, and its width; width is 0 where there is none.
	lacks(text string) (at, width int)
}

// byteSymbols has the symbol of each byte, -1 where the vocabulary lacks it.
type byteSymbols [256]int32

func newByteSymbols(m *modelFile, ids map[string]int32) (*byteSymbols, error) {
	if m.ByteFallback {
		return nil, fmt.Errorf("byte_fallback is not supported in a byte-level vocabulary")
	}
	unk := unknownID(m, ids)
	var s byteSymbols
	for b := range s {
		s[b] = unk
		if id, ok := ids[string(byteRune[b])]; ok {
			s[b] = id
		} else if m.UnkToken != nil && unk < 0 {
			return nil, fmt.Errorf("vocab has neither a token for byte %#02x (%q) nor unk_token %q", b, byteRune[b], *m.UnkToken)
		} else if m.UnkToken != nil && m.FuseUnk {
			return nil, fmt.Errorf("fuse_unk is not supported where vocab lacks bytes (%#02x, %q)", b, byteRune[b])
		}
	}
	return &s, nil
}

// unknownID is the id of unk_token, -1 where there is none.
func unknownID(m *modelFile, ids map[string]int32) int32 {
	if m.UnkToken != nil && *m.UnkToken != "" {
		if id, ok := ids[*m.UnkToken]; ok {
			return id
		}
	}
	return -1
}

func (s *byteSymbols) append(ids []int32, word string) []int32 {
	for i := range len(word) {
		if id := s[word[i]]; id >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (s *byteSymbols) lacks(text string) (at, width int) {
	for i := range len(text) {
		if s[text[i]] < 0 {
			return i, 1
		}
	}
	return 0, 0
}

// runeSymbols has the symbols of code points, and of the bytes of those that
// the vocabulary lacks.
type runeSymbols struct {
	ascii [128]int32 // -1 where the vocabulary lacks it
	runes map[rune]int32
	bytes [256]int32 // with byte fallback
	falls bool       // byte fallback
	unk   int32      // -1 for none
	fuse  bool       // neighbouring unknowns are one
}

func newRuneSymbols(m *modelFile, ids map[string]int32) (*runeSymbols, error) {
	s := &runeSymbols{runes: map[rune]int32{}, falls: m.ByteFallback, unk: unknownID(m, ids), fuse: m.FuseUnk}
	for i := range s.ascii {
		s.ascii[i] = -1
	}
	for spelling, id := range ids {
		if r, w := utf8.DecodeRuneInString(spelling); w > 0 && w == len(spelling) {
			s.put(r, id)
		}
	}
	for b := range s.bytes {
		if !s.falls {
			break
		}
		spelling := fmt.Sprintf("<0x%02X>", b)
		id, ok := ids[spelling]
		if !ok {
			return nil, fmt.Errorf("byte_fallback is set, but vocab lacks %q", spelling)
		}
		s.bytes[b] = id
	}
	if m.UnkToken != nil && s.unk < 0 && !s.falls {
		return nil, fmt.Errorf("unk_token %q is not in vocab", *m.UnkToken)
	}
	return s, nil
}

// put enters the symbol of a rune.
func (s *runeSymbols) put(r rune, id int32) {
	if r < 128 {
		s.ascii[r] = id
	} else {
		s.runes[r] = id
	}
}

// of gives the symbol of the rune at s[i:], -1 for none, and its width.
func (s *runeSymbols) of(text string, i int) (id int32, width int) {
	if b := text[i]; b < utf8.RuneSelf {
		return s.ascii[b], 1
	}
	r, w := utf8.DecodeRuneInString(text[i:])
	if r == utf8.RuneError && w == 1 {
		return -1, 1
	}
	if id, ok := s.runes[r]; ok {
		return id, w
	}
	return -1, w
}

func (s *runeSymbols) append(ids []int32, word string) []int32 {
	unknown := false // the symbol before is unk, and may be fused
	for i := 0; i < len(word); {
		id, w := s.of(word, i)
		switch {
		case id >= 0:
			ids, unknown = append(ids, id), false
		case s.falls:
			for j := range w {
				ids = append(ids, s.bytes[word[i+j]])
			}
		case s.unk >= 0 && !(s.fuse && unknown):
			ids, unknown = append(ids, s.unk), true
		}
		i += w
	}
	return ids
}

func (s *runeSymbols) lacks(text string) (at, width int) {
	if s.falls || s.unk >= 0 {
		return 0, 0
	}
	for i := 0; i < len(text); {
		id, w := s.of(text, i)
		if id < 0 {
			return i, w
		}
		i += w
	}
	return 0, 0
}

// expressible reports the first place of a text that the vocabulary has no
// symbol for.
func (t *Tokenizer) expressible(text string) error {
	if t.decoding.bytes {
		if at, w := t.symbols.lacks(text); w > 0 {
			return fmt.Errorf("the tokenizer has no token for byte %#02x at offset %d", text[at], at)
		}
		return nil
	}
	// Normalisers and stages change code points (a space becomes another
	// character), so that only what they leave can be judged.
	text = t.normalize.apply(text)
	for _, st := range t.stages {
		if st.rewrite != nil {
			text = st.rewrite(text, true)
		}
	}
	if at, w := t.symbols.lacks(text); w > 0 {
		return fmt.Errorf("the tokenizer has no token for %q", text[at:at+w])
	}
	return nil
}
