package server

import (
	"regexp"
	"strings"

	"exacta.dev/exacta/engine/grammar"
)

// pattern is what the answer must match, as response_format or structured_outputs
// say; empty is anything. param is the field that said it.
func (c *common) pattern() (pattern, param string, err error) {
	if c.Structured != nil {
		param = "structured_outputs"
		pattern, err = c.Structured.pattern()
		if err != nil {
			return "", param, err
		}
	}
	f := c.ResponseFormat
	if f == nil || f.Type == "text" {
		return pattern, param, nil
	}
	if pattern != "" {
		return "", param, invalid("response_format", "response_format and structured_outputs: give one of them")
	}
	param = "response_format"
	switch f.Type {
	case "json_object":
		pattern, err = grammar.SchemaPattern([]byte(`{"type": "object"}`))
	case "json_schema":
		if f.JSONSchema == nil || rawNull(f.JSONSchema.Schema) {
			return "", param, invalid(param, "response_format.json_schema.schema is missing")
		}
		pattern, err = grammar.SchemaPattern(f.JSONSchema.Schema)
	default:
		return "", param, invalid(param, "response_format.type is %q; it must be text, json_object or json_schema", short(f.Type))
	}
	if err != nil {
		return "", param, invalid(param, "response_format: %v", err)
	}
	return pattern, param, nil
}

// pattern is the one that is given.
func (s *structured) pattern() (string, error) {
	const param = "structured_outputs"
	var all []string
	add := func(pattern string, err error) error {
		if err != nil {
			return invalid(param, "%s: %v", param, err)
		}
		all = append(all, pattern)
		return nil
	}
	var err error
	if !rawNull(s.JSON) {
		err = add(grammar.SchemaPattern(s.JSON))
	}
	if s.JSONObject != nil && *s.JSONObject && err == nil {
		err = add(grammar.SchemaPattern([]byte(`{"type": "object"}`)))
	}
	if s.Regex != nil && err == nil {
		err = add(*s.Regex, grammar.Check(*s.Regex))
	}
	if len(s.Choice) > 0 {
		var choices []string
		for _, c := range s.Choice {
			choices = append(choices, regexp.QuoteMeta(c))
		}
		all = append(all, strings.Join(choices, "|"))
	}
	switch {
	case err != nil:
		return "", err
	case !rawNull(s.Grammar) || !rawNull(s.StructuralTag):
		return "", invalid(param, "%s: grammar and structural_tag are not supported; give one of json, regex, choice and json_object", param)
	case len(all) != 1:
		return "", invalid(param, "%s: give one of json, regex, choice and json_object", param)
	}
	return all[0], nil
}

// afterThinking lets reasoning come before what matches a pattern. opened says that
// the prompt ends inside of it.
func (f family) afterThinking(pattern string, opened bool) string {
	if pattern == "" || f.thinkClose == "" {
		return pattern
	}
	thought := without(f.thinkClose) + regexp.QuoteMeta(f.thinkClose) + `\s{0,2}`
	if !opened {
		thought = "(?:" + regexp.QuoteMeta(f.thinkOpen) + thought + ")?"
	}
	return thought + "(?:" + pattern + ")"
}

// without is the pattern of all text that does not contain a mark, up to the mark:
// the mark's first byte occurs in it only once.
func without(mark string) string {
	runes := []rune(mark)
	q := func(r rune) string { return regexp.QuoteMeta(string(r)) }
	// A beginning of the mark that is given up, either for another beginning
	// or for a rune that does not continue it.
	broken, partial := []string{}, []string{}
	at := ""
	for i, r := range runes {
		if i > 0 {
			partial = append(partial, at)
			broken = append(broken, at+"[^"+q(runes[0])+q(r)+"]")
		}
		at += q(r)
	}
	again := "(?:" + strings.Join(partial, "|") + ")*"
	return "(?:[^" + q(runes[0]) + "]|" + again + "(?:" + strings.Join(broken, "|") + "))*" + again
}
