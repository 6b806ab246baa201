package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// maxID is the highest id accepted: vocabularies are at most 2^20.
const maxID = 1<<20 - 1

// maxFile is the longest file read, in bytes; the largest published ones have
// a fifth of it.
const maxFile = 160 << 20

// maxContent is the longest content of an added token, and maxContents that of
// all of them, in bytes.
const maxContent, maxContents = 1024, 1 << 20

// Load reads the text of a tokenizer.json. An option that is not implemented
// is an error that names it; so is a vocabulary that contradicts itself.
func Load(text []byte) (*Tokenizer, error) {
	t, err := load(text)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func load(text []byte) (*Tokenizer, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes; at most %d are read", len(text), maxFile)
	}
	if !utf8.Valid(text) {
		return nil, errors.New("the file is not valid UTF-8")
	}
	f, err := parseFile(text)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{cache: newWordCache()}
	t.buffers.New = func() any { return &encoder{t: t} }
	t.ignored = f.ignored()
	var strips bool
	if t.normalize, strips, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	var bytes bool
	if t.stages, bytes, err = parsePreTokenizer(f.PreTokenizer, strips); err != nil {
		return nil, err
	}
	if t.decoding, err = parseDecoder(f.Decoder); err != nil {
		return nil, err
	}
	if bytes != t.decoding.bytes {
		return nil, errors.New("pre_tokenizer and decoder must both have ByteLevel, or neither")
	}
	m, err := parseModel(f.Model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.addVocab(m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if m.Type == sentencePiece {
		if err := t.addScored(m); err != nil {
			return nil, fmt.Errorf("model: scores: %w", err)
		}
	} else if err := t.addMerges(m); err != nil {
		return nil, fmt.Errorf("model: merges: %w", err)
	}
	if err := t.addAdded(f.AddedTokens); err != nil {
		return nil, fmt.Errorf("added_tokens: %w", err)
	}
	if t.prefix, t.suffix, err = t.parsePostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

// put enters one token, growing the table.
func (t *Tokenizer) put(id int32, tok token) error {
	if id < 0 || id > maxID {
		return fmt.Errorf("token %q has id %d; ids are 0 to %d", tok.spelling, id, maxID)
	}
	if int(id) >= len(t.tokens) {
		t.tokens = append(t.tokens, make([]token, int(id)+1-len(t.tokens))...)
	}
	if old := t.tokens[id]; old.present {
		return fmt.Errorf("tokens %q and %q have one id, %d", min(old.spelling, tok.spelling), max(old.spelling, tok.spelling), id)
	}
	tok.present = true
	t.tokens[id] = tok
	t.ids[tok.spelling] = id
	t.count++
	return nil
}

func (t *Tokenizer) addVocab(m *modelFile) error {
	if len(m.Vocab) == 0 {
		return errors.New("vocab is empty or missing")
	}
	t.ids = make(map[string]int32, len(m.Vocab))
	if m.IgnoreMerges {
		t.whole = make(map[string]int32, len(m.Vocab))
	}
	top := int32(-1)
	for _, id := range m.Vocab {
		if id <= maxID {
			top = max(top, id)
		}
	}
	t.tokens = make([]token, 0, top+1)
	for spelling, id := range m.Vocab {
		text, single := t.decoding.text(spelling)
		if err := t.put(id, token{spelling: spelling, text: text, single: single}); err != nil {
			return err
		}
		if t.whole == nil || spelling == "" {
			continue
		}
		if !t.decoding.bytes {
			t.whole[spelling] = id
		} else if text, plain := unspell(spelling); plain {
			t.whole[text] = id
		}
	}
	var err error
	if t.decoding.bytes {
		t.symbols, err = newByteSymbols(m, t.ids)
	} else {
		t.symbols, err = newRuneSymbols(m, t.ids)
	}
	return err
}

func (t *Tokenizer) addMerges(m *modelFile) error {
	merges, err := parseMerges(m.Merges)
	if err != nil {
		return err
	}
	t.model = newBPE(len(merges))
	cut := t.cutter(m)
	for rank, pair := range merges {
		var ids [3]int32
		for i, spelling := range [...]string{pair[0], pair[1], pair[0] + pair[1]} {
			id, ok := t.ids[spelling]
			if !ok || pair[0] == "" || pair[1] == "" {
				return fmt.Errorf("merge %d (%q %q): %q is not in vocab", rank, pair[0], pair[1], spelling)
			}
			ids[i] = id
			if _, single := fallbackByte(spelling); single && m.ByteFallback {
				return fmt.Errorf("merge %d (%q %q): merges of byte tokens are not supported", rank, pair[0], pair[1])
			}
		}
		t.model.add(pairKey(ids[0], ids[1]), uint64(rank)<<32|uint64(uint32(ids[2])))
		if cut != nil {
			cut.join(pair[0], pair[1])
		}
	}
	if cut != nil {
		t.stages = append(t.stages, stage{split: cut})
	}
	if s, ok := t.symbols.(*byteSymbols); ok {
		t.model.addBytes(s)
	}
	return nil
}

// cutter gives the seams to be filled with the merges of a model that works on
// code points; nil where words must stay whole: with ignore_merges the whole
// word is looked up, and unknown characters may be fused.
func (t *Tokenizer) cutter(m *modelFile) *seams {
	if t.decoding.bytes || m.IgnoreMerges || !m.ByteFallback {
		return nil
	}
	return newSeams()
}

func (t *Tokenizer) addAdded(list []AddedToken) error {
	contents := map[string]bool{}
	size := 0
	for _, a := range list {
		size += len(a.Content)
		switch {
		case size > maxContents:
			return fmt.Errorf("their contents have more than %d bytes", maxContents)
		case a.Content == "":
			return fmt.Errorf("token with id %d has no content", a.ID)
		case len(a.Content) > maxContent:
			return fmt.Errorf("token with id %d has %d bytes; the most is %d", a.ID, len(a.Content), maxContent)
		case contents[a.Content]:
			return fmt.Errorf("token %q occurs twice", a.Content)
		}
		contents[a.Content] = true
		if id, ok := t.ids[a.Content]; ok {
			if id != a.ID {
				return fmt.Errorf("token %q has id %d, but %d in the model's vocab", a.Content, a.ID, id)
			}
			t.tokens[id].special = a.Special
		} else if err := t.put(a.ID, token{spelling: a.Content, special: a.Special}); err != nil {
			return err
		}
		shown := a.Content
		if a.Normalized {
			shown = t.normalize.apply(shown)
		}
		t.tokens[a.ID].text, t.tokens[a.ID].single = t.decoding.text(shown)
	}
	t.added = slices.Clone(list)
	slices.SortFunc(t.added, func(a, b AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	var raw, normal []*AddedToken
	var rawTexts, normalTexts []string
	for i := range t.added {
		a := &t.added[i]
		if !a.Normalized {
			raw, rawTexts = append(raw, a), append(rawTexts, a.Content)
		} else if text := t.normalize.apply(a.Content); text != "" {
			normal, normalTexts = append(normal, a), append(normalTexts, text)
		}
	}
	t.rawAdded = newAddedSet(rawTexts, raw)
	t.normalAdded = newAddedSet(normalTexts, normal)
	return nil
}
