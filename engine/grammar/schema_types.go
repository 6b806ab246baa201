package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// text is the pattern of texts.
func text(s *node) (string, error) {
	if f := s.get("format"); f != nil {
		pattern, ok := formats[f.text()]
		if !ok {
			return "", fmt.Errorf("schema: format %s is not supported", clip(f.raw))
		}
		return pattern, nil
	}
	if p := s.get("pattern"); p != nil {
		return quotedPattern(p.text())
	}
	lo, hi, err := bounds(s, "minLength", "maxLength")
	if err != nil {
		return "", err
	}
	return `"` + repeated(jsonChar, lo, hi) + `"`, nil
}

// quotedPattern is a "pattern" inside of quotes. It is searched for unless it is
// anchored, and what it matches must need no escapes.
func quotedPattern(p string) (string, error) {
	if _, err := parse(p); err != nil {
		return "", fmt.Errorf("schema: pattern: %w", err)
	}
	if strings.ContainsAny(p, `"`) || regexp.MustCompile(`\\[^.dDwsnrtpP\[\](){}+*?|^$/-]|(^|[^\\])\.|\[\^|\\[DS]|\\s`).MatchString(p) {
		return "", fmt.Errorf("schema: pattern %s may match quotes, backslashes or control characters, which is not supported; name the characters that it takes", clip([]byte(p)))
	}
	body, begins := strings.CutPrefix(p, "^")
	body, ends := strings.CutSuffix(body, "$")
	if !begins || !ends || strings.HasSuffix(body, `\`) {
		return "", fmt.Errorf("schema: pattern %s: it must be anchored by ^ and $", clip([]byte(p)))
	}
	return `"(?:` + body + `)"`, nil
}

// array is the pattern of arrays.
func (w *schemaWriter) array(s *node, depth int) (string, error) {
	lo, hi, err := bounds(s, "minItems", "maxItems")
	if err != nil {
		return "", err
	}
	var first []string
	if p := s.get("prefixItems"); p != nil {
		for _, item := range p.list {
			pattern, err := w.value(item, depth+1)
			if err != nil {
				return "", err
			}
			first = append(first, pattern)
		}
		if hi < 0 || hi > len(first) {
			hi = len(first) // items behind them are left out
		}
		if lo > len(first) || hi < len(first) {
			return "", errors.New("schema: minItems or maxItems do not go with prefixItems")
		}
		return `\[` + strings.Join(first, jsonComma) + `\]`, nil
	}
	item := free(freeDepth - 1)
	if items := s.get("items"); items != nil {
		if item, err = w.value(items, depth+1); err != nil {
			return "", err
		}
	}
	if hi == 0 {
		return `\[\]`, nil
	}
	more := hi
	if hi > 0 {
		more = hi - 1
	}
	list := "(?:" + item + ")" + repeated("(?:"+jsonComma+"(?:"+item+"))", max(0, lo-1), more)
	if lo == 0 {
		list = "(?:" + list + ")?"
	}
	return `\[` + list + `\]`, nil
}

// object is the pattern of objects: the properties in order, those that are not
// required may be missing.
func (w *schemaWriter) object(s *node, depth int) (string, error) {
	properties := s.get("properties")
	if properties == nil || len(properties.object) == 0 {
		return w.dictionary(s, depth)
	}
	required := map[string]bool{}
	if r := s.get("required"); r != nil {
		for _, key := range r.list {
			required[key.text()] = true
			if properties.get(key.text()) == nil {
				return "", fmt.Errorf("schema: %s is required and no property", clip([]byte(key.text())))
			}
		}
	}
	// rest[i] is the pattern of properties from i on, each with a comma before
	// it; from it the ones that may come first are chosen.
	var pairs []string
	var need []bool
	for _, m := range properties.object {
		value, err := w.value(m.value, depth+1)
		if err != nil {
			return "", err
		}
		key, _ := json.Marshal(m.key)
		pairs, need = append(pairs, regexp.QuoteMeta(string(key))+jsonColon+"(?:"+value+")"), append(need, required[m.key])
	}
	rest := func(from int) string {
		var b strings.Builder
		for i := from; i < len(pairs); i++ {
			if need[i] {
				b.WriteString(jsonComma + pairs[i])
			} else {
				b.WriteString("(?:" + jsonComma + pairs[i] + ")?")
			}
		}
		return b.String()
	}
	var firsts []string
	for i := range pairs {
		firsts = append(firsts, pairs[i]+rest(i+1))
		if need[i] {
			break
		}
	}
	body := "(?:" + strings.Join(firsts, "|") + ")"
	if !slices.Contains(need, true) {
		body += "?"
	}
	return `\{` + body + `\}`, nil
}

// dictionary is the pattern of objects with any keys.
func (w *schemaWriter) dictionary(s *node, depth int) (string, error) {
	value := free(freeDepth - 1)
	if r := s.get("required"); r != nil && len(r.list) > 0 {
		return "", errors.New("schema: required without properties is not supported")
	}
	if extra := s.get("additionalProperties"); extra != nil {
		switch string(extra.raw) {
		case "false":
			return `\{\}`, nil
		case "true":
		default:
			var err error
			if value, err = w.value(extra, depth+1); err != nil {
				return "", err
			}
		}
	}
	pair := jsonString + jsonColon + "(?:" + value + ")"
	return `\{(?:` + pair + `(?:` + jsonComma + pair + `)*)?\}`, nil
}

// free is the pattern of any value that nests at most so deep.
func free(depth int) string {
	scalar := jsonString + "|" + jsonNumber + "|true|false|null"
	if depth == 0 {
		return "(?:" + scalar + ")"
	}
	inner := free(depth - 1)
	pair := jsonString + jsonColon + inner
	return "(?:" + scalar + `|\[(?:` + inner + `(?:` + jsonComma + inner + `)*)?\]|\{(?:` + pair + `(?:` + jsonComma + pair + `)*)?\})`
}
