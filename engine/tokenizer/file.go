package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// file is the outer object of a tokenizer.json.
type file struct {
	Version       *string         `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []AddedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// modelFile is the model object.
type modelFile struct {
	Type         string          `json:"type"`
	Dropout      *float64        `json:"dropout"`
	UnkToken     *string         `json:"unk_token"`
	Prefix       *string         `json:"continuing_subword_prefix"`
	Suffix       *string         `json:"end_of_word_suffix"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        vocabulary      `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
	Scores       []*float32      `json:"scores"` // of a SentencePiece model, by id; null: no merge makes it
}

// vocabulary is the ids of tokens. It is read token by token, so that a file of
// many small ones is refused before they fill the memory.
type vocabulary map[string]int32

// UnmarshalJSON reads the object.
func (v *vocabulary) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("vocab must be an object")
	}
	*v = vocabulary{}
	for n := 0; d.More(); n++ {
		if n > maxID {
			return fmt.Errorf("vocab has more than %d entries", maxID+1)
		}
		key, err := d.Token()
		if err != nil {
			return err
		}
		var id int32
		if err := d.Decode(&id); err != nil {
			return fmt.Errorf("vocab: the id of %q: %w", key, err)
		}
		(*v)[key.(string)] = id
	}
	return nil
}

// UnmarshalJSON reads an added token; each of its keys is required.
func (a *AddedToken) UnmarshalJSON(text []byte) error {
	var in struct {
		ID         *int32  `json:"id"`
		Content    *string `json:"content"`
		SingleWord *bool   `json:"single_word"`
		LStrip     *bool   `json:"lstrip"`
		RStrip     *bool   `json:"rstrip"`
		Normalized *bool   `json:"normalized"`
		Special    *bool   `json:"special"`
	}
	if err := strict(text, &in); err != nil {
		return err
	}
	if in.ID == nil || in.Content == nil || in.SingleWord == nil || in.LStrip == nil || in.RStrip == nil || in.Normalized == nil || in.Special == nil {
		return errors.New("added_tokens: an entry must have id, content, single_word, lstrip, rstrip, normalized and special")
	}
	*a = AddedToken{*in.ID, *in.Content, *in.SingleWord, *in.LStrip, *in.RStrip, *in.Normalized, *in.Special}
	return nil
}

// strict decodes JSON and refuses unknown keys and trailing text.
func strict(text []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text follows the JSON value")
	}
	return nil
}

// absent reports whether an optional object is missing or null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func parseFile(text []byte) (*file, error) {
	var f file
	if err := strict(text, &f); err != nil {
		return nil, err
	}
	switch {
	case f.Version != nil && *f.Version != "1.0":
		return nil, fmt.Errorf("version is %q; known is \"1.0\"", *f.Version)
	case absent(f.Model):
		return nil, errors.New("model is missing")
	}
	return &f, nil
}

// ignored lists what is in the file and has no effect here.
func (f *file) ignored() (out []string) {
	if !absent(f.Truncation) {
		out = append(out, "truncation: a prompt that is too long is refused, not shortened")
	}
	if !absent(f.Padding) {
		out = append(out, "padding: sequences of a batch keep their own lengths")
	}
	return out
}

func parseModel(raw json.RawMessage) (*modelFile, error) {
	var m modelFile
	if err := strict(raw, &m); err != nil {
		// Other models have other keys: their type says more than the key.
		if kind, typeErr := typeOf(raw); typeErr != nil || kind == "BPE" || kind == sentencePiece {
			return nil, err
		} else {
			m.Type = kind
		}
	}
	switch {
	case m.Type == sentencePiece && (!absent(m.Merges) || m.IgnoreMerges):
		return nil, fmt.Errorf("a model of type %s has scores, and no merges", sentencePiece)
	case m.Type == "BPE" && m.Scores != nil:
		return nil, errors.New("a model of type BPE has merges, and no scores")
	case m.Type != "BPE" && m.Type != sentencePiece:
		return nil, fmt.Errorf("type is %q; known are \"BPE\" and exacta's \"SentencePiece\"; all model families that can be run here use them", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, fmt.Errorf("dropout is %g; only null is supported", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return nil, fmt.Errorf("continuing_subword_prefix is %q; only null is supported", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return nil, fmt.Errorf("end_of_word_suffix is %q; only null is supported", *m.Suffix)
	}
	return &m, nil
}

// maxMerges is the most merges read; the largest published files have a quarter
// of it.
const maxMerges = 1 << 21

// parseMerges reads merges in either layout: "a b" or ["a", "b"].
func parseMerges(raw json.RawMessage) (out [][2]string, err error) {
	if absent(raw) {
		return nil, errors.New("the list is missing")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("it must be a list")
	}
	for i := 0; d.More(); i++ {
		if i == maxMerges {
			return nil, fmt.Errorf("there are more than %d", maxMerges)
		}
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case string:
			a, b, ok := strings.Cut(t, " ")
			if strings.HasPrefix(t, "#version") {
				continue
			}
			if !ok || strings.Contains(b, " ") {
				return nil, fmt.Errorf("merge %d is %q; it must be two tokens with a space between", i, t)
			}
			out = append(out, [2]string{a, b})
		case json.Delim:
			pair, err := mergePair(d, i)
			if err != nil {
				return nil, err
			}
			out = append(out, pair)
		default:
			return nil, fmt.Errorf("merge %d is neither a text nor a pair", i)
		}
	}
	return out, nil
}

// mergePair reads the rest of a pair whose bracket was read.
func mergePair(d *json.Decoder, i int) (pair [2]string, err error) {
	n := 0
	for ; d.More(); n++ {
		t, err := d.Token()
		if err != nil {
			return pair, err
		}
		s, ok := t.(string)
		if !ok {
			return pair, fmt.Errorf("merge %d must be a pair of texts", i)
		}
		if n < 2 {
			pair[n] = s
		}
	}
	if n != 2 {
		return pair, fmt.Errorf("merge %d has %d parts; it must have 2", i, n)
	}
	_, err = d.Token()
	return pair, err
}

// maxNesting is how deep Sequence components may hold each other.
const maxNesting = 4

// typeOf reads the type of a component.
func typeOf(raw json.RawMessage) (string, error) {
	var t struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(raw, &t); err != nil || t.Type == nil {
		return "", errors.New("it must be an object with a type")
	}
	return *t.Type, nil
}

// flatten resolves Sequence components to the list of their parts. listKey is
// the name of the list in a Sequence.
func flatten(raw json.RawMessage, what, listKey string, depth int) ([]json.RawMessage, error) {
	if absent(raw) {
		return nil, nil
	}
	kind, err := typeOf(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if kind != "Sequence" {
		return []json.RawMessage{raw}, nil
	}
	if depth == 0 {
		return nil, fmt.Errorf("%s: Sequence within Sequence is nested too deep", what)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for key := range keys {
		if key != "type" && key != listKey {
			return nil, fmt.Errorf("%s: Sequence: unknown key %q", what, key)
		}
	}
	var list []json.RawMessage
	if err := json.Unmarshal(keys[listKey], &list); err != nil {
		return nil, fmt.Errorf("%s: Sequence: %s must be a list", what, listKey)
	}
	var out []json.RawMessage
	for _, part := range list {
		parts, err := flatten(part, what, listKey, depth-1)
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	return slices.Clip(out), nil
}
