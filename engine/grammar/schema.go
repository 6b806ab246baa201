package grammar

import (
	stdbytes "bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of JSON schemas.
const (
	// freeDepth is how deep values nest of which a schema says nothing.
	freeDepth = 2
	// schemaDepth is how deep a schema nests.
	schemaDepth = 32
	// mostRepeat is the largest bound of a repetition.
	mostRepeat = 1000
)

// Patterns of JSON. A space may stand behind a colon and a comma, and nowhere else:
// a pattern that allows any amount of it lets a model write nothing else.
const (
	jsonString  = `"` + jsonChar + `*"`
	jsonChar    = `(?:[^"\\\x00-\x1f\x7f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))`
	jsonInteger = `-?(?:0|[1-9][0-9]{0,18})`
	jsonNumber  = `-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?`
	jsonComma   = `, ?`
	jsonColon   = `: ?`
)

// formats are patterns of "format" of texts.
var formats = map[string]string{
	"date":      `"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"`,
	"time":      `"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"`,
	"date-time": `"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"`,
	"uuid":      `"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"`,
	"ipv4":      `"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)"`,
	"email":     `"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4}"`,
}

// known are the keywords that SchemaPattern honours, or that constrain nothing.
var known = []string{
	"$schema", "$id", "$defs", "$ref", "definitions", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment",
	"type", "enum", "const", "anyOf", "oneOf", "allOf", "nullable",
	"properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems",
	"minLength", "maxLength", "pattern", "format", "strict",
}

// SchemaPattern returns a pattern of JSON texts that are valid by a JSON schema
// (draft 2020-12, the subset that OpenAI's and vLLM's structured outputs use). It
// matches some of the valid texts, never another: properties come in the schema's
// order and no other ones do, where a schema says nothing values nest two deep, and
// white space is one space or none. A keyword that it can't honour is an error that
// names it, and so is a schema that refers to itself.
func SchemaPattern(schema []byte) (string, error) {
	root, err := parseSchema(schema)
	if err != nil {
		return "", err
	}
	w := schemaWriter{root: root}
	return w.value(root, 0)
}

// node is a JSON value; objects keep their order.
type node struct {
	object []member
	list   []*node
	isList bool
	raw    json.RawMessage
}

type member struct {
	key   string
	value *node
}

func (n *node) get(key string) *node {
	for _, m := range n.object {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// text is the value as a text; "" where it is none.
func (n *node) text() (s string) {
	if n != nil {
		_ = json.Unmarshal(n.raw, &s) // of another type: none
	}
	return s
}

func parseSchema(text []byte) (*node, error) {
	if !json.Valid(text) {
		return nil, errors.New("schema: it is no JSON")
	}
	d := json.NewDecoder(stdbytes.NewReader(text))
	d.UseNumber()
	return readNode(text, d, 0)
}

func readNode(text []byte, d *json.Decoder, depth int) (*node, error) {
	if depth > 2*schemaDepth {
		return nil, fmt.Errorf("schema: nested more than %d deep", 2*schemaDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	from := int(d.InputOffset())
	n := &node{}
	delim, ok := token.(json.Delim)
	if !ok {
		n.raw, err = json.Marshal(token)
		return n, err
	}
	n.isList = delim == '['
	for d.More() {
		m := member{}
		if !n.isList {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			m.key = key.(string)
		}
		if m.value, err = readNode(text, d, depth+1); err != nil {
			return nil, err
		}
		if n.isList {
			n.list = append(n.list, m.value)
		} else {
			n.object = append(n.object, m)
		}
	}
	_, err = d.Token()
	n.raw = stdbytes.TrimSpace(text[from-1 : d.InputOffset()])
	return n, err
}

// schemaWriter writes the pattern of a schema.
type schemaWriter struct {
	root *node
	refs []string // being followed
	size int
}

// value is the pattern of a schema's values.
func (w *schemaWriter) value(s *node, depth int) (string, error) {
	if depth > schemaDepth {
		return "", fmt.Errorf("schema: nested more than %d deep", schemaDepth)
	}
	pattern, err := w.write(s, depth)
	if w.size += len(pattern); err == nil && len(pattern) > maxPattern {
		err = fmt.Errorf("schema: its pattern is longer than %d bytes; use a smaller one", maxPattern)
	}
	if err == nil && w.size > 64*maxPattern {
		err = errors.New("schema: it repeats itself too often by $ref; use a smaller one")
	}
	return pattern, err
}

func (w *schemaWriter) write(s *node, depth int) (string, error) {
	switch {
	case string(s.raw) == "true":
		return free(freeDepth), nil
	case s.isList || len(s.raw) > 0 && s.raw[0] != '{':
		return "", fmt.Errorf("schema: %s is none; it must be an object", clip(s.raw))
	}
	for _, m := range s.object {
		if !slices.Contains(known, m.key) {
			return "", fmt.Errorf("schema: %s is not supported", clip([]byte(m.key)))
		}
	}
	switch {
	case s.get("$ref") != nil:
		return w.ref(s.get("$ref").text(), depth)
	case s.get("const") != nil:
		return literal(s.get("const"))
	case s.get("enum") != nil:
		return choices(s.get("enum").list, "enum", literal)
	case s.get("anyOf") != nil:
		return w.any(s.get("anyOf").list, "anyOf", depth)
	case s.get("oneOf") != nil:
		return w.any(s.get("oneOf").list, "oneOf", depth)
	case s.get("allOf") != nil:
		if len(s.get("allOf").list) != 1 {
			return "", errors.New("schema: allOf of more than one schema is not supported")
		}
		return w.value(s.get("allOf").list[0], depth+1)
	}
	kind := s.get("type")
	if kind != nil && kind.isList {
		return choices(kind.list, "type", func(k *node) (string, error) { return w.typed(s, k.text(), depth) })
	}
	pattern, err := w.typed(s, kind.text(), depth)
	if n := s.get("nullable"); err == nil && n != nil && string(n.raw) == "true" {
		pattern = "(?:" + pattern + "|null)"
	}
	return pattern, err
}

// any is the pattern of one of several schemas.
func (w *schemaWriter) any(list []*node, what string, depth int) (string, error) {
	return choices(list, what, func(s *node) (string, error) { return w.value(s, depth+1) })
}

// ref follows a reference inside of the schema.
func (w *schemaWriter) ref(to string, depth int) (string, error) {
	if slices.Contains(w.refs, to) {
		return "", fmt.Errorf("schema: %s refers to itself, which is not supported", clip([]byte(to)))
	}
	path, ok := strings.CutPrefix(to, "#")
	at := w.root
	for _, key := range strings.Split(path, "/")[1:] {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~1", "/"), "~0", "~")
		if at = at.get(key); at == nil {
			break
		}
	}
	if !ok || at == nil {
		return "", fmt.Errorf("schema: $ref %s leads nowhere; it must be one of $defs, as #/$defs/NAME", clip([]byte(to)))
	}
	w.refs = append(w.refs, to)
	defer func() { w.refs = w.refs[:len(w.refs)-1] }()
	return w.value(at, depth+1)
}

// typed is the pattern of values of a type.
func (w *schemaWriter) typed(s *node, kind string, depth int) (string, error) {
	switch kind {
	case "":
		switch {
		case s.get("properties") != nil:
			return w.object(s, depth)
		case s.get("items") != nil || s.get("prefixItems") != nil:
			return w.array(s, depth)
		}
		return free(freeDepth), nil
	case "string":
		return text(s)
	case "integer":
		return jsonInteger, nil
	case "number":
		return jsonNumber, nil
	case "boolean":
		return "(?:true|false)", nil
	case "null":
		return "null", nil
	case "array":
		return w.array(s, depth)
	case "object":
		return w.object(s, depth)
	}
	return "", fmt.Errorf("schema: type %s is not known", clip([]byte(kind)))
}

// repeated repeats a pattern; hi below 0 is without end.
func repeated(pattern string, lo, hi int) string {
	switch {
	case hi < 0 && lo == 0:
		return pattern + "*"
	case hi < 0:
		return pattern + "{" + strconv.Itoa(lo) + ",}"
	}
	return pattern + "{" + strconv.Itoa(lo) + "," + strconv.Itoa(hi) + "}"
}

// bounds reads a pair of bounds; the second is -1 where there is none.
func bounds(s *node, low, high string) (lo, hi int, err error) {
	hi = -1
	for _, b := range []struct {
		key string
		to  *int
	}{{low, &lo}, {high, &hi}} {
		n := s.get(b.key)
		if n == nil {
			continue
		}
		v, err := strconv.ParseFloat(string(n.raw), 64)
		if err != nil || v < 0 || v != math.Trunc(v) || v > mostRepeat {
			return 0, 0, fmt.Errorf("schema: %s is %s; it must be 0 to %d", b.key, clip(n.raw), mostRepeat)
		}
		*b.to = int(v)
	}
	if hi >= 0 && lo > hi {
		return 0, 0, fmt.Errorf("schema: %s is more than %s", low, high)
	}
	return lo, hi, nil
}

// literal is the pattern of one value.
func literal(n *node) (string, error) {
	var b stdbytes.Buffer
	if err := json.Compact(&b, n.raw); err != nil {
		return "", err
	}
	return regexp.QuoteMeta(b.String()), nil
}

// choices is the pattern of one of several.
func choices(list []*node, what string, each func(*node) (string, error)) (string, error) {
	if len(list) == 0 {
		return "", fmt.Errorf("schema: %s must be a list that is not empty", what)
	}
	var all []string
	for _, n := range list {
		p, err := each(n)
		if err != nil {
			return "", err
		}
		all = append(all, p)
	}
	return "(?:" + strings.Join(all, "|") + ")", nil
}

// clip shortens what errors show.
func clip(text []byte) string {
	const most = 40
	s := string(text)
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return strconv.Quote(s)
}
