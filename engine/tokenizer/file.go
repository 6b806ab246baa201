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
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       json.RawMessage  `json:"merges"`
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
		if kind, typeErr := typeOf(raw); typeErr != nil || kind == "BPE" {
			return nil, err
		} else {
			m.Type = kind
		}
	}
	switch {
	case m.Type != "BPE":
		return nil, fmt.Errorf("type is %q; known is \"BPE\", which all model families that can be run here use", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, fmt.Errorf("dropout is %g; only null is supported", *m.Dropout)
	case m.Prefix != nil && *m.Prefix != "":
		return nil, fmt.Errorf("continuing_subword_prefix is %q; only null is supported", *m.Prefix)
	case m.Suffix != nil && *m.Suffix != "":
		return nil, fmt.Errorf("end_of_word_suffix is %q; only null is supported", *m.Suffix)
	}
	return &m, nil
}

// parseMerges reads merges in either layout: "a b" or ["a", "b"].
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	if absent(raw) {
		return nil, errors.New("the list is missing")
	}
	inner := bytes.TrimLeft(bytes.TrimPrefix(raw, []byte("[")), " \t\r\n")
	if len(inner) > 0 && inner[0] == '[' {
		var pairs [][]string
		if err := strict(raw, &pairs); err != nil {
			return nil, err
		}
		out := make([][2]string, 0, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("merge %d has %d parts; it must have 2", i, len(p))
			}
			out = append(out, [2]string{p[0], p[1]})
		}
		return out, nil
	}
	var lines []string
	if err := strict(raw, &lines); err != nil {
		return nil, err
	}
	out := make([][2]string, 0, len(lines))
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		a, b, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merge %d is %q; it must be two tokens with a space between", i, line)
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
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
