package tokenizer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// Tokenizer encodes and decodes text. It does not change after Load and is
// safe for concurrent use.
type Tokenizer struct {
	ids    map[string]int32 // spelling or content -> id
	tokens []token          // by id; spelling is empty where an id has no token
	count  int              // ids that have a token
	added  []AddedToken     // sorted by id

	rawAdded    *addedSet // matched before normalisation
	normalAdded *addedSet // matched after it
	normalize   normalizer
	stages      []stage
	model       bpe
	symbols     symbols
	hidden      []rune           // by id above firstHidden
	whole       map[string]int32 // words that are one token whatever their merges; nil for none
	decoding    *decoding
	prefix      []int32 // of the template
	suffix      []int32
	ignored     []string

	cache   *wordCache
	buffers sync.Pool // of *encoder
}

// token is one entry of the vocabulary.
type token struct {
	spelling string // as in the file
	text     string // the bytes it stands for
	single   bool   // it is one byte of byte fallback
	special  bool
	present  bool
}

// encoder is the working space of one call of Encode.
type encoder struct {
	t    *Tokenizer
	out  []int32
	ids  []int32
	long mergeBuffer
}

// Encode returns the ids of text; with addSpecial, those of the file's
// template (such as begin of text) are put around them. It never fails: bytes
// that are no valid UTF-8 are encoded through the byte table or the byte
// tokens, each a symbol to the splitters, and what the vocabulary has no symbol
// for is dropped, as in the reference. EncodeStrict refuses both.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	e := t.buffers.Get().(*encoder)
	e.out = e.out[:0]
	if addSpecial {
		e.out = append(e.out, t.prefix...)
	}
	emit := func(a *AddedToken) { e.out = append(e.out, a.ID) }
	t.rawAdded.split(text, emit, func(piece string, first bool) {
		t.normalAdded.split(t.normalize.apply(piece), emit, func(s string, begins bool) { e.split(0, s, first && begins) })
	})
	if addSpecial {
		e.out = append(e.out, t.suffix...)
	}
	out := slices.Clone(e.out)
	t.buffers.Put(e)
	return out
}

// EncodeStrict is Encode for text from outside: text that is no valid UTF-8,
// or that has bytes the vocabulary cannot express, is an error that names the
// place (a byte offset, from 0).
func (t *Tokenizer) EncodeStrict(text string, addSpecial bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		at := 0
		for {
			r, w := utf8.DecodeRuneInString(text[at:])
			if r == utf8.RuneError && w == 1 {
				return nil, fmt.Errorf("text is not valid UTF-8: byte %#02x at offset %d", text[at], at)
			}
			at += w
		}
	}
	if err := t.expressible(text); err != nil {
		return nil, err
	}
	return t.Encode(text, addSpecial), nil
}

// split passes a piece through the stages from the given one on; first says
// whether it begins the text.
func (e *encoder) split(at int, s string, first bool) {
	if at == len(e.t.stages) {
		e.word(s)
		return
	}
	st := &e.t.stages[at]
	if st.rewrite != nil {
		s = st.rewrite(s, first)
	}
	if st.split == nil {
		e.split(at+1, s, first)
		return
	}
	for len(s) > 0 {
		n := st.split.next(s)
		e.split(at+1, s[:n], first)
		s, first = s[n:], false
	}
}

// word encodes one word.
func (e *encoder) word(s string) {
	t := e.t
	if t.whole != nil {
		if id, ok := t.whole[s]; ok {
			e.out = append(e.out, id)
			return
		}
	}
	if len(s) == 1 || len(s) > cacheMaxWord {
		e.out = append(e.out, e.merge(s)...)
		return
	}
	ids, slot := t.cache.get(s)
	if ids == nil {
		ids = e.merge(s)
		if slot != nil {
			t.cache.put(slot, s, ids)
		}
	}
	e.out = append(e.out, ids...)
}

// merge runs the merges over a word; the result is valid until the next call.
func (e *encoder) merge(s string) []int32 {
	e.ids = e.t.symbols.append(e.ids[:0], s)
	ids := e.t.model.merge(s, e.ids, &e.long)
	if e.t.hidden != nil {
		ids = e.t.unhide(ids)
	}
	return ids
}

// Decode returns the text of ids. In byte-level vocabularies each maximal
// invalid part of the joined bytes becomes one U+FFFD; with byte fallback each
// byte of a run of byte tokens that is no valid UTF-8 does. Ids without a token
// give nothing, as in the reference; with skipSpecial, so do special tokens.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	if t.decoding.bytes {
		return lossy(t.DecodeBytes(ids, skipSpecial))
	}
	d := t.NewDecoder(skipSpecial)
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(d.Push(id))
	}
	out.WriteString(d.Flush())
	return out.String()
}

func lossy(raw []byte) string {
	if utf8.Valid(raw) {
		return string(raw)
	}
	out, _ := appendLossy(nil, raw, true)
	return string(out)
}

// DecodeBytes returns the joined bytes of ids, which may be no valid UTF-8. It
// is the text of each by itself: nothing is taken off the beginning.
func (t *Tokenizer) DecodeBytes(ids []int32, skipSpecial bool) []byte {
	var out []byte
	for _, id := range ids {
		if t.Known(id) && !(skipSpecial && t.tokens[id].special) {
			out = append(out, t.tokens[id].text...)
		}
	}
	return out
}

// VocabSize is the highest id plus one: the least vocabulary that a model must
// have. Some ids below it may have no token.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// Count is the number of ids that have a token.
func (t *Tokenizer) Count() int { return t.count }

// Known reports whether id has a token.
func (t *Tokenizer) Known(id int32) bool {
	return id >= 0 && int(id) < len(t.tokens) && t.tokens[id].present
}

// TokenText is the text that one id stands for, for display: parts of runes
// show as U+FFFD. It is empty for ids without a token.
func (t *Tokenizer) TokenText(id int32) string { return lossy(t.TokenBytes(id)) }

// TokenBytes is the bytes that one id stands for.
func (t *Tokenizer) TokenBytes(id int32) []byte { return t.DecodeBytes([]int32{id}, false) }

// Spelling is a token as the file spells it, such as "Ġthe"; empty for ids
// without a token.
func (t *Tokenizer) Spelling(id int32) string {
	if !t.Known(id) {
		return ""
	}
	return t.tokens[id].spelling
}

// ID gives the id of a token by its spelling in the file: the content of an
// added token, or an entry of the vocabulary ("Ġthe").
func (t *Tokenizer) ID(spelling string) (int32, bool) {
	id, ok := t.ids[spelling]
	return id, ok
}

// IsSpecial reports whether id is a special token.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.Known(id) && t.tokens[id].special }

// Added returns the added tokens, sorted by id.
func (t *Tokenizer) Added() []AddedToken { return slices.Clone(t.added) }

// Template returns the ids that Encode puts before and after a text with
// addSpecial.
func (t *Tokenizer) Template() (before, after []int32) {
	return slices.Clone(t.prefix), slices.Clone(t.suffix)
}

// Ignored lists the parts of the file that are read and not followed, each with
// its reason.
func (t *Tokenizer) Ignored() []string { return slices.Clone(t.ignored) }

// Check reports whether the tokenizer fits a model with vocabSize embeddings.
// A model may have more (padding), never fewer.
func (t *Tokenizer) Check(vocabSize int) error {
	if n := t.VocabSize(); n > vocabSize {
		return fmt.Errorf("tokenizer has ids up to %d (%q), but the model's vocabulary has %d: they are not of the same model", n-1, t.Spelling(int32(n-1)), vocabSize)
	}
	return nil
}
