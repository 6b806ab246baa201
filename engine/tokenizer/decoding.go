package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// decoding is what the file's decoder does to tokens. Either they spell bytes
// (ByteLevel), or each stands for its own text after some replacements, where
// tokens such as <0x0A> may stand for bytes.
type decoding struct {
	bytes    bool
	replace  []string // old, new, old, new, ...
	fallback bool
	strip    string // a character that is taken off the beginning of the text,
	stripMax int    // at most so often
	meta     string // Metaspace's replacement, which stands for a space,
	metaDrop bool   // but vanishes from the first token
}

// text gives what a token stands for by itself, and whether that is a byte of
// byte fallback.
func (d *decoding) text(spelling string) (text string, single bool) {
	if d.bytes {
		text, _ = unspell(spelling)
		return text, false
	}
	for i := 0; i < len(d.replace); i += 2 {
		spelling = strings.ReplaceAll(spelling, d.replace[i], d.replace[i+1])
	}
	if b, ok := fallbackByte(spelling); ok && d.fallback {
		return string([]byte{b}), true
	}
	if d.meta != "" {
		spelling = strings.ReplaceAll(spelling, d.meta, " ")
	}
	return spelling, false
}

// fallbackByte reads the spelling of a byte: <0x0A>.
func fallbackByte(token string) (b byte, ok bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(v), err == nil
}

// decoderFile is the union of the keys of the decoders in a Sequence.
type decoderFile struct {
	Type    string   `json:"type"`
	Pattern *pattern `json:"pattern"`
	Content *string  `json:"content"`
	Start   *int     `json:"start"`
	Stop    *int     `json:"stop"`
}

var decoderKeys = map[string][]string{
	"Replace": {"pattern", "content"}, "ByteFallback": nil, "Fuse": nil, "Strip": {"content", "start", "stop"},
}

// parseDecoder accepts ByteLevel, Metaspace, or Replace, ByteFallback, Fuse and
// Strip in this order.
func parseDecoder(raw json.RawMessage) (*decoding, error) {
	parts, err := flatten(raw, "decoder", "decoders", maxNesting)
	if err != nil {
		return nil, err
	}
	if len(parts) == 0 {
		return nil, errors.New("decoder: it is missing; \"ByteLevel\" would be right for a byte-level vocabulary")
	}
	d := &decoding{}
	fused, last := false, 0
	for i, part := range parts {
		kind, err := typeOf(part)
		if err != nil {
			return nil, fmt.Errorf("decoder: %w", err)
		}
		order := map[string]int{"Replace": 1, "ByteFallback": 2, "Fuse": 3, "Strip": 4}[kind]
		switch {
		case len(parts) == 1 && (kind == "ByteLevel" || kind == "Metaspace"):
			err = d.alone(kind, part)
		case order == 0:
			return nil, fmt.Errorf("decoder: type %q is not supported at place %d; known are \"ByteLevel\" or \"Metaspace\" alone, or \"Replace\", \"ByteFallback\", \"Fuse\" and \"Strip\" in a Sequence", kind, i)
		case order < last:
			return nil, fmt.Errorf("decoder: %s after a later step; the order must be Replace, ByteFallback, Fuse, Strip", kind)
		case kind == "Strip" && !fused:
			return nil, errors.New("decoder: Strip without Fuse before it is not supported")
		default:
			err = d.step(kind, part)
		}
		if err != nil {
			return nil, fmt.Errorf("decoder: %s: %w", kind, err)
		}
		fused = fused || kind == "Fuse"
		last = order
	}
	return d, nil
}

func (d *decoding) alone(kind string, raw json.RawMessage) error {
	if kind == "ByteLevel" {
		d.bytes = true
		return strict(raw, &byteLevel{})
	}
	m, err := parseMetaspace(raw)
	if err == nil {
		d.meta, d.metaDrop = m.Replacement, m.scheme() != "never"
	}
	return err
}

func (d *decoding) step(kind string, raw json.RawMessage) error {
	var f decoderFile
	if err := exactKeys(raw, decoderKeys[kind], &f); err != nil {
		return err
	}
	switch kind {
	case "Replace":
		if f.Pattern.String == nil || *f.Pattern.String == "" || f.Pattern.Regex != nil {
			return errors.New("pattern must be {\"String\": ...}; others are not supported")
		}
		d.replace = append(d.replace, *f.Pattern.String, *f.Content)
	case "ByteFallback":
		d.fallback = true
	case "Strip":
		switch {
		case len([]rune(*f.Content)) != 1:
			return fmt.Errorf("content is %q; it must be one character", *f.Content)
		case *f.Stop != 0:
			return fmt.Errorf("stop is %d; only 0 is supported", *f.Stop)
		case *f.Start < 0:
			return fmt.Errorf("start is %d; it must not be negative", *f.Start)
		}
		d.strip, d.stripMax = *f.Content, *f.Start
	}
	return nil
}
