package tokenizer

import (
	"encoding/json"
	"fmt"
)

// maxNesting is how deep Sequence components may hold each other.
const maxNesting = 4

// parseNormalizer accepts none, NFC, or a Sequence of NFC.
func parseNormalizer(raw json.RawMessage) (normalize bool, err error) {
	parts, err := flatten(raw, "normalizer", "normalizers", maxNesting)
	if err != nil {
		return false, err
	}
	for _, part := range parts {
		kind, err := typeOf(part)
		if err != nil {
			return false, fmt.Errorf("normalizer: %w", err)
		}
		if kind != "NFC" {
			return false, fmt.Errorf("normalizer: type %q is not supported; known is \"NFC\"", kind)
		}
		if err := strict(part, &struct{ Type string }{}); err != nil {
			return false, fmt.Errorf("normalizer: NFC: %w", err)
		}
		normalize = true
	}
	return normalize, nil
}

// byteLevel is the ByteLevel component in each of its three places.
type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	TrimOffsets    *bool  `json:"trim_offsets"` // offsets are not computed here
	UseRegex       *bool  `json:"use_regex"`
}

// parsePreTokenizer builds the chain of splitters. Its last part must be
// ByteLevel: vocabularies are spelled in its table.
func parsePreTokenizer(raw json.RawMessage) ([]splitter, error) {
	const what = "pre_tokenizer"
	parts, err := flatten(raw, what, "pretokenizers", maxNesting)
	if err != nil {
		return nil, err
	}
	var out []splitter
	ended := false
	for _, part := range parts {
		if ended {
			return nil, fmt.Errorf("%s: ByteLevel must be the last part", what)
		}
		kind, err := typeOf(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		var s splitter
		switch kind {
		case "Split":
			s, err = parseSplit(part)
		case "Digits":
			s, err = parseDigits(part)
		case "ByteLevel":
			ended = true
			s, err = parseByteLevel(part)
		default:
			return nil, fmt.Errorf("%s: type %q is not supported; known are \"Split\", \"Digits\", \"ByteLevel\", \"Sequence\"", what, kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", what, kind, err)
		}
		if s != nil {
			out = append(out, s)
		}
	}
	if !ended {
		return nil, fmt.Errorf("%s: it must end in ByteLevel; other vocabularies than byte-level ones are not supported", what)
	}
	return out, nil
}

func parseSplit(raw json.RawMessage) (splitter, error) {
	var s struct {
		Type     string                     `json:"type"`
		Pattern  map[string]json.RawMessage `json:"pattern"`
		Behavior string                     `json:"behavior"`
		Invert   bool                       `json:"invert"`
	}
	if err := strict(raw, &s); err != nil {
		return nil, err
	}
	var pattern string
	if err := json.Unmarshal(s.Pattern["Regex"], &pattern); err != nil || len(s.Pattern) != 1 {
		return nil, fmt.Errorf("pattern must be {\"Regex\": ...}; others are not supported")
	}
	match, ok := scanners[pattern]
	switch {
	case !ok:
		return nil, fmt.Errorf("the pattern %q has no scanner; known are those of Llama 3, Qwen2, Qwen3.5, GPT-2 and DeepSeek V3", pattern)
	case s.Behavior != "Isolated":
		return nil, fmt.Errorf("behavior %q is not supported; known is \"Isolated\"", s.Behavior)
	case s.Invert:
		return nil, fmt.Errorf("invert is not supported")
	}
	return patternSplit{match}, nil
}

func parseDigits(raw json.RawMessage) (splitter, error) {
	var d struct {
		Type       string `json:"type"`
		Individual *bool  `json:"individual_digits"`
	}
	if err := strict(raw, &d); err != nil {
		return nil, err
	}
	return digitSplit{d.Individual != nil && *d.Individual}, nil
}

// parseByteLevel gives the splitter of GPT-2's pattern, or nil where the
// component only spells bytes.
func parseByteLevel(raw json.RawMessage) (splitter, error) {
	var b byteLevel
	if err := strict(raw, &b); err != nil {
		return nil, err
	}
	if b.AddPrefixSpace == nil || *b.AddPrefixSpace {
		return nil, fmt.Errorf("add_prefix_space is not supported; false would be right")
	}
	if b.UseRegex != nil && !*b.UseRegex {
		return nil, nil
	}
	return patternSplit{scanD}, nil
}

// parseDecoder accepts ByteLevel alone.
func parseDecoder(raw json.RawMessage) error {
	if absent(raw) {
		return fmt.Errorf("decoder: it is missing; \"ByteLevel\" would be right")
	}
	kind, err := typeOf(raw)
	if err != nil {
		return fmt.Errorf("decoder: %w", err)
	}
	if kind != "ByteLevel" {
		return fmt.Errorf("decoder: type %q is not supported; known is \"ByteLevel\"", kind)
	}
	if err := strict(raw, &byteLevel{}); err != nil {
		return fmt.Errorf("decoder: ByteLevel: %w", err)
	}
	return nil
}
