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

// maxContent is the longest content of an added token, in bytes.
const maxContent = 1024

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
	if !utf8.Valid(text) {
		return nil, errors.New("the file is not valid UTF-8")
	}
	f, err := parseFile(text)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{cache: newWordCache()}
	t.buffers.New = func() any { return &encoder{t: t} }
	if t.normalize, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.splitters, err = parsePreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := parseDecoder(f.Decoder); err != nil {
		return nil, err
	}
	m, err := parseModel(f.Model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.addVocab(m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := t.addMerges(m); err != nil {
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
		text, plain := unspell(spelling)
		if err := t.put(id, token{spelling: spelling, text: text}); err != nil {
			return err
		}
		if plain && t.whole != nil && text != "" {
			t.whole[text] = id
		}
	}
	unk := int32(-1)
	if m.UnkToken != nil && *m.UnkToken != "" {
		if id, ok := t.ids[*m.UnkToken]; ok {
			unk = id
		}
	}
	for b := range t.byteID {
		t.byteID[b] = unk
		if id, ok := t.ids[string(byteRune[b])]; ok {
			t.byteID[b] = id
		} else if m.UnkToken != nil && unk < 0 {
			return fmt.Errorf("vocab has neither a token for byte %#02x (%q) nor unk_token %q", b, byteRune[b], *m.UnkToken)
		} else if m.UnkToken != nil && m.FuseUnk {
			return fmt.Errorf("fuse_unk is not supported where vocab lacks bytes (%#02x, %q)", b, byteRune[b])
		}
	}
	return nil
}

func (t *Tokenizer) addMerges(m *modelFile) error {
	merges, err := parseMerges(m.Merges)
	if err != nil {
		return err
	}
	t.model = newBPE(len(merges))
	for rank, pair := range merges {
		var ids [3]int32
		for i, spelling := range [...]string{pair[0], pair[1], pair[0] + pair[1]} {
			id, ok := t.ids[spelling]
			if !ok || pair[0] == "" || pair[1] == "" {
				return fmt.Errorf("merge %d (%q %q): %q is not in vocab", rank, pair[0], pair[1], spelling)
			}
			ids[i] = id
		}
		t.model.add(pairKey(ids[0], ids[1]), uint64(rank)<<32|uint64(uint32(ids[2])))
	}
	return nil
}

func (t *Tokenizer) addAdded(list []AddedToken) error {
	contents := map[string]bool{}
	for _, a := range list {
		switch {
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
		if a.Normalized && t.normalize {
			shown = nfc(shown)
		}
		t.tokens[a.ID].text, _ = unspell(shown)
	}
	t.added = slices.Clone(list)
	slices.SortFunc(t.added, func(a, b AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	var raw, normal []*AddedToken
	var rawTexts, normalTexts []string
	for i := range t.added {
		a := &t.added[i]
		switch {
		case !a.Normalized:
			raw, rawTexts = append(raw, a), append(rawTexts, a.Content)
		case t.normalize:
			normal, normalTexts = append(normal, a), append(normalTexts, nfc(a.Content))
		default:
			normal, normalTexts = append(normal, a), append(normalTexts, a.Content)
		}
	}
	t.rawAdded = newAddedSet(rawTexts, raw)
	t.normalAdded = newAddedSet(normalTexts, normal)
	return nil
}
