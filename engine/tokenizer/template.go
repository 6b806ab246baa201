package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
)

// maxTemplate bounds the ids that a template adds to a text.
const maxTemplate = 64

// template is the TemplateProcessing component. The pair template, for tasks
// with two texts, is not used.
type template struct {
	Type    string                     `json:"type"`
	Single  []map[string]templatePiece `json:"single"`
	Pair    json.RawMessage            `json:"pair"`
	Special map[string]struct {
		ID     string   `json:"id"`
		IDs    []int32  `json:"ids"`
		Tokens []string `json:"tokens"`
	} `json:"special_tokens"`
}

type templatePiece struct {
	ID     string `json:"id"`
	TypeID int    `json:"type_id"`
}

// parsePostProcessor gives the ids before and after a text. ByteLevel adds
// none here; several templates wrap each other, the first innermost.
func (t *Tokenizer) parsePostProcessor(raw json.RawMessage) (before, after []int32, err error) {
	const what = "post_processor"
	parts, err := flatten(raw, what, "processors", maxNesting)
	if err != nil {
		return nil, nil, err
	}
	for _, part := range parts {
		kind, err := typeOf(part)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", what, err)
		}
		switch kind {
		case "ByteLevel":
			if err := strict(part, &byteLevel{}); err != nil {
				return nil, nil, fmt.Errorf("%s: ByteLevel: %w", what, err)
			}
		case "TemplateProcessing":
			b, a, err := t.parseTemplate(part)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: TemplateProcessing: %w", what, err)
			}
			before, after = slices.Concat(b, before), slices.Concat(after, a)
		default:
			return nil, nil, fmt.Errorf("%s: type %q is not supported; known are \"ByteLevel\", \"TemplateProcessing\", \"Sequence\"", what, kind)
		}
	}
	return before, after, nil
}

func (t *Tokenizer) parseTemplate(raw json.RawMessage) (before, after []int32, err error) {
	var p template
	if err := strict(raw, &p); err != nil {
		return nil, nil, err
	}
	texts := 0
	for _, piece := range p.Single {
		for kind, v := range piece {
			switch {
			case len(piece) != 1:
				return nil, nil, fmt.Errorf("single: a piece must have one key")
			case kind == "Sequence" && v.ID == "A":
				texts++
			case kind == "SpecialToken":
				s, ok := p.Special[v.ID]
				if !ok {
					return nil, nil, fmt.Errorf("single: %q is not in special_tokens", v.ID)
				}
				if len(before)+len(after)+len(s.IDs) > maxTemplate {
					return nil, nil, fmt.Errorf("single: it adds more than %d ids", maxTemplate)
				}
				if texts == 0 {
					before = append(before, s.IDs...)
				} else {
					after = append(after, s.IDs...)
				}
			default:
				return nil, nil, fmt.Errorf("single: piece %q %q is not supported", kind, v.ID)
			}
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("single: the text must stand in it once, not %d times", texts)
	}
	for _, id := range slices.Concat(before, after) {
		if !t.Known(id) {
			return nil, nil, fmt.Errorf("special_tokens: id %d is not in the vocabulary", id)
		}
	}
	return before, after, nil
}
