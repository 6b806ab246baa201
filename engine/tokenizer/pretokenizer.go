package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// stage is one step between normalisation and the model: it rewrites a piece,
// then cuts it. Either may be nil.
type stage struct {
	// rewrite gets whether the piece begins the text.
	rewrite func(s string, first bool) string
	split   splitter
}

// byteLevel is the ByteLevel component in each of its three places.
type byteLevel struct {
	Type           string `json:"type"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
	TrimOffsets    *bool  `json:"trim_offsets"` // offsets are not computed here
	UseRegex       *bool  `json:"use_regex"`
}

const knownPreTokenizers = `"Split", "Digits", "ByteLevel", "Metaspace", "Sequence"`

// parsePreTokenizer builds the stages. Where ByteLevel is among them, as the
// last, the model works on bytes; else it works on code points.
func parsePreTokenizer(raw json.RawMessage, strips bool) (stages []stage, bytes bool, err error) {
	const what = "pre_tokenizer"
	parts, err := flatten(raw, what, "pretokenizers", maxNesting)
	if err != nil {
		return nil, false, err
	}
	for _, part := range parts {
		if bytes {
			return nil, false, fmt.Errorf("%s: ByteLevel must be the last part", what)
		}
		kind, err := typeOf(part)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", what, err)
		}
		var s stage
		switch kind {
		case "Split":
			s.split, err = parseSplit(part)
		case "Digits":
			s.split, err = parseDigits(part)
		case "ByteLevel":
			bytes = true
			s, err = parseByteLevel(part)
		case "Metaspace":
			s, err = parseMetaspaceStage(part, strips)
		default:
			return nil, false, fmt.Errorf("%s: type %q is not supported; known are %s", what, kind, knownPreTokenizers)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %s: %w", what, kind, err)
		}
		if s.split != nil || s.rewrite != nil {
			stages = append(stages, s)
		}
	}
	return stages, bytes, nil
}

func parseSplit(raw json.RawMessage) (splitter, error) {
	var s struct {
		Type     string  `json:"type"`
		Pattern  pattern `json:"pattern"`
		Behavior string  `json:"behavior"`
		Invert   bool    `json:"invert"`
	}
	if err := strict(raw, &s); err != nil {
		return nil, err
	}
	switch {
	case (s.Pattern.String == nil) == (s.Pattern.Regex == nil):
		return nil, errors.New("pattern must be {\"Regex\": ...} or {\"String\": ...}")
	case s.Invert:
		return nil, errors.New("invert is not supported")
	case s.Pattern.String != nil:
		return newLiteralSplit(*s.Pattern.String, s.Behavior)
	case s.Behavior != "Isolated":
		return nil, fmt.Errorf("behavior %q is not supported with a regular expression; known is \"Isolated\"", s.Behavior)
	}
	// Some files hold line ends themselves where others escape them.
	match, ok := scanners[strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(*s.Pattern.Regex)]
	if !ok {
		return nil, fmt.Errorf("the pattern %q has no scanner; known are those of Llama 3, GLM, Qwen2, Qwen3.5, GPT-2 and DeepSeek V3", *s.Pattern.Regex)
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

// parseByteLevel gives the stage of GPT-2's pattern, and of the space that may
// be put before a piece.
func parseByteLevel(raw json.RawMessage) (s stage, err error) {
	var b byteLevel
	if err := strict(raw, &b); err != nil {
		return s, err
	}
	if b.AddPrefixSpace == nil {
		return s, errors.New("add_prefix_space is missing")
	}
	if *b.AddPrefixSpace {
		s.rewrite = func(s string, _ bool) string {
			if strings.HasPrefix(s, " ") {
				return s
			}
			return " " + s
		}
	}
	if b.UseRegex == nil || *b.UseRegex {
		s.split = patternSplit{scanD}
	}
	return s, nil
}

// metaspace is the Metaspace component, as pre-tokenizer and as decoder.
type metaspace struct {
	Type           string  `json:"type"`
	Replacement    string  `json:"replacement"`
	StrRep         *string `json:"str_rep"` // an old key, of the same value
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	PrependScheme  *string `json:"prepend_scheme"`
	Split          *bool   `json:"split"`
}

// scheme is when a piece gets the replacement before it: "always", "first" or
// "never". Files of old versions say it by add_prefix_space.
func (m *metaspace) scheme() string {
	switch {
	case m.PrependScheme != nil:
		return *m.PrependScheme
	case m.AddPrefixSpace != nil && !*m.AddPrefixSpace:
		return "never"
	}
	return "always"
}

func parseMetaspace(raw json.RawMessage) (*metaspace, error) {
	var m metaspace
	if err := strict(raw, &m); err != nil {
		return nil, err
	}
	if n := len([]rune(m.Replacement)); n != 1 {
		return nil, fmt.Errorf("replacement has %d characters; it must have 1", n)
	}
	switch m.scheme() {
	case "always", "first", "never":
		return &m, nil
	}
	return nil, fmt.Errorf("prepend_scheme is %q; known are \"always\", \"first\" and \"never\"", m.scheme())
}

func parseMetaspaceStage(raw json.RawMessage, strips bool) (s stage, err error) {
	m, err := parseMetaspace(raw)
	if err != nil {
		return s, err
	}
	scheme := m.scheme()
	if scheme == "first" && strips {
		return s, errors.New("prepend_scheme \"first\" after a Strip normaliser is not supported")
	}
	s.rewrite = func(text string, first bool) string {
		text = strings.ReplaceAll(text, " ", m.Replacement)
		if (scheme == "always" || scheme == "first" && first) && !strings.HasPrefix(text, m.Replacement) {
			text = m.Replacement + text
		}
		return text
	}
	if m.Split == nil || *m.Split {
		s.split, err = newLiteralSplit(m.Replacement, mergedWithNext)
	}
	return s, err
}
