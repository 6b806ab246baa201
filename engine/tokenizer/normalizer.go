package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer rewrites text before it is split, step by step; without steps it
// changes nothing.
type normalizer []func(string) string

func (n normalizer) apply(s string) string {
	for _, step := range n {
		s = step(s)
	}
	return s
}

// pattern is what a Replace or Split component looks for.
type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// normalizerFile is the union of the normalisers' keys.
type normalizerFile struct {
	Type    string   `json:"type"`
	Pattern *pattern `json:"pattern"`
	Content *string  `json:"content"`
	Prepend *string  `json:"prepend"`
	Left    *bool    `json:"strip_left"`
	Right   *bool    `json:"strip_right"`
}

const knownNormalizers = `"NFC", "NFKC", "Lowercase", "Strip", "Prepend", "Replace", "Sequence"`

// parseNormalizer builds the steps; strips reports whether one of them takes
// white space away.
func parseNormalizer(raw json.RawMessage) (n normalizer, strips bool, err error) {
	const what = "normalizer"
	parts, err := flatten(raw, what, "normalizers", maxNesting)
	if err != nil {
		return nil, false, err
	}
	for _, part := range parts {
		kind, err := typeOf(part)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", what, err)
		}
		step, err := parseNormalizerStep(kind, part)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", what, err)
		}
		n = append(n, step)
		strips = strips || kind == "Strip"
	}
	return n, strips, nil
}

// normalizerKeys lists the keys that each kind must have.
var normalizerKeys = map[string][]string{
	"NFC": nil, "NFKC": nil, "Lowercase": nil,
	"Strip": {"strip_left", "strip_right"}, "Prepend": {"prepend"}, "Replace": {"pattern", "content"},
}

func parseNormalizerStep(kind string, raw json.RawMessage) (func(string) string, error) {
	keys, ok := normalizerKeys[kind]
	if !ok {
		return nil, fmt.Errorf("type %q is not supported; known are %s", kind, knownNormalizers)
	}
	var f normalizerFile
	if err := exactKeys(raw, keys, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	switch kind {
	case "NFC":
		return nfc, nil
	case "NFKC":
		return nfkc, nil
	case "Lowercase":
		return lowercase, nil
	case "Strip":
		return func(s string) string { return trimSpace(s, *f.Left, *f.Right) }, nil
	case "Prepend":
		return func(s string) string {
			if s == "" {
				return s
			}
			return *f.Prepend + s
		}, nil
	}
	if f.Pattern.String == nil || *f.Pattern.String == "" || f.Pattern.Regex != nil {
		return nil, fmt.Errorf("%s: pattern must be {\"String\": ...}; others are not supported", kind)
	}
	return func(s string) string { return strings.ReplaceAll(s, *f.Pattern.String, *f.Content) }, nil
}

// exactKeys decodes an object that has the given keys, none of them null, and
// a type.
func exactKeys(raw json.RawMessage, keys []string, out any) error {
	var have map[string]json.RawMessage
	if err := json.Unmarshal(raw, &have); err != nil {
		return err
	}
	for _, key := range keys {
		if absent(have[key]) {
			return fmt.Errorf("%s is missing", key)
		}
		delete(have, key)
	}
	delete(have, "type")
	for key := range have {
		return fmt.Errorf("unknown field %q", key)
	}
	return strict(raw, out)
}

// trimSpace takes white space (the property White_Space) off the ends.
func trimSpace(s string, left, right bool) string {
	if left {
		s = s[run(s, 0, space):]
	}
	if right {
		s = s[:spaceBefore(s, 0, len(s))]
	}
	return s
}

// lateCompatible holds the code points whose compatibility decomposition is
// newer than the reference's tables, as first and last of each range: it leaves
// them alone.
var lateCompatible = [...][2]rune{
	{0x32ff, 0x32ff}, {0xa7f2, 0xa7f4}, {0xab69, 0xab69}, {0x10781, 0x107ba}, {0x1ccd6, 0x1ccf9},
	{0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
}

// nfkc is nfc of the text with compatibility code points decomposed.
func nfkc(s string) string {
	if norm.NFKC.IsNormalString(s) && norm.NFC.IsNormalString(s) {
		return nfc(s)
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		part := s[i : i+w]
		if w > 1 && !isLateCompatible(r) {
			if d := norm.NFKD.String(part); d != norm.NFD.String(part) {
				part = d
			}
		}
		out.WriteString(part)
		i += w
	}
	return nfc(out.String())
}

func isLateCompatible(r rune) bool {
	for _, lr := range lateCompatible {
		if r >= lr[0] && r <= lr[1] {
			return true
		}
	}
	return false
}

// lateLower holds the capitals (first, last, step) that are newer than the
// Unicode tables of Go, and the distance to their small letters.
var lateLower = [...]struct{ first, last, step, by rune }{
	{0x1c89, 0x1c89, 1, 1}, {0xa7cb, 0xa7cb, 1, 0x264 - 0xa7cb}, {0xa7cc, 0xa7da, 2, 1}, {0xa7dc, 0xa7dc, 1, 0x19b - 0xa7dc},
	{0x10d50, 0x10d65, 1, 0x20}, {0x16ea0, 0x16eb8, 1, 0x1b},
}

// lowercase maps each rune by itself, as the reference does: a final sigma is
// like any other, and the dotted capital I becomes two code points.
func lowercase(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && w == 1:
			out.WriteByte(s[i])
		case r == 0x130:
			out.WriteString("i\u0307")
		default:
			out.WriteRune(lowerRune(r))
		}
		i += w
	}
	return out.String()
}

func lowerRune(r rune) rune {
	if r >= 0x1c89 {
		for _, l := range lateLower {
			// U+A7D0, D6 and D8 lie in a range but are known to Go.
			if r >= l.first && r <= l.last && (r-l.first)%l.step == 0 && unicode.ToLower(r) == r {
				return r + l.by
			}
		}
	}
	return unicode.ToLower(r)
}
