package grammar_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/grammar"
)

// The pattern of a schema matches texts that are valid by it, and none that are not.
func TestSchemaPattern(t *testing.T) {
	for schema, texts := range map[string][2][]string{
		`{"type": "string"}`:                                                         {{`""`, `"é\n\u00e9\""`}, {`x`, `"a`, `"\x"`, "\"\n\""}},
		`{"type": "integer"}`:                                                        {{`0`, `-12`}, {`01`, `1.0`, `+1`, ``}},
		`{"type": "number"}`:                                                         {{`0`, `-1.5e-3`, `2E9`}, {`.5`, `1.`, `NaN`}},
		`{"type": ["boolean", "null"]}`:                                              {{`true`, `false`, `null`}, {`True`, `0`}},
		`{"enum": ["a", 1, null, {"x": [1, 2]}]}`:                                    {{`"a"`, `1`, `null`, `{"x":[1,2]}`}, {`a`, `2`}},
		`{"const": "a.b"}`:                                                           {{`"a.b"`}, {`"axb"`}},
		`{"type": "string", "minLength": 2, "maxLength": 3}`:                         {{`"ab"`, `"日本語"`, `"\n\n"`}, {`"a"`, `"abcd"`}},
		`{"type": "string", "pattern": "^[a-z]{2}-\\d+$"}`:                           {{`"ab-12"`}, {`"AB-12"`, `"ab-"`, `ab-1`}},
		`{"type": "string", "format": "date"}`:                                       {{`"2026-11-30"`}, {`"2026-13-30"`}},
		`{"type": "array", "items": {"type": "integer"}}`:                            {{`[]`, `[1]`, `[1, 2,3]`}, {`[1,]`, `[,1]`, `["a"]`}},
		`{"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3}`: {{`[null,null]`, `[null, null, null]`}, {`[]`, `[null]`, `[null,null,null,null]`}},
		`{"type": "array", "maxItems": 0}`:                                           {{`[]`}, {`[1]`}},
		`{"prefixItems": [{"type": "integer"}, {"type": "string"}]}`:                 {{`[1, "a"]`}, {`[1]`, `["a", 1]`}},
		`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "null"}}, "required": ["b"]}`: {
			{`{"b": "x"}`, `{"a":1,"b":""}`, `{"a": 1, "b": "", "c": null}`, `{"b":"","c":null}`}, {`{}`, `{"a": 1}`, `{"b": "x",}`, `{"c": null, "b": ""}`, `{"b": "x", "d": 1}`},
		},
		`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}`: {{`{}`, `{"a": 1}`, `{"b": 1}`, `{"a": 1, "b": 2}`}, {`{,}`, `{"b": 1, "a": 2}`}},
		`{"type": "object"}`: {{`{}`, `{"a": [1, "x"], "b": {"c": null}}`}, {`[]`, `1`}},
		`{"type": "object", "additionalProperties": {"type": "integer"}}`: {{`{}`, `{"x": 1, "y": 2}`}, {`{"x": "1"}`}},
		`{"type": "object", "additionalProperties": false}`:               {{`{}`}, {`{"x": 1}`}},
		`{"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/t"}], "$defs": {"t": {"type": "object", "properties": {"x": {"$ref": "#/$defs/u"}}}, "u": {"type": "boolean"}}}`: {{`1`, `{"x": true}`}, {`true`}},
		`{"type": "string", "nullable": true}`: {{`null`, `"a"`}, {`nul`}},
		`true`:                                 {{`1`, `"a"`, `[[1]]`, `{"a": {"b": 2}}`}, {`[[[[1]]]]`, ``}},
	} {
		p, err := grammar.SchemaPattern([]byte(schema))
		require.NoError(t, err, schema)
		require.NoError(t, grammar.Check(p), schema)
		re := regexp.MustCompile(`^(?:` + p + `)$`)
		for _, ok := range texts[0] {
			require.True(t, json.Valid([]byte(ok)), ok)
			require.True(t, re.MatchString(ok), "%s takes %s", schema, ok)
		}
		for _, no := range texts[1] {
			require.False(t, re.MatchString(no), "%s takes no %s", schema, no)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	deep := strings.Repeat(`{"items": `, 100) + `{}` + strings.Repeat(`}`, 100)
	wide := `{"$defs": {"a": {"enum": ["` + strings.Repeat("x", 5000) + `"]}}, "prefixItems": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}`
	for schema, want := range map[string]string{
		``:                                     "no JSON",
		`[1]`:                                  "must be an object",
		`3`:                                    "must be an object",
		`{"type": "thing"}`:                    "thing",
		`{"type": "integer", "minimum": 1}`:    "minimum",
		`{"$ref": "#"}`:                        "refers to itself",
		`{"$ref": "#/$defs/x"}`:                "leads nowhere",
		`{"$ref": "http://x/y"}`:               "leads nowhere",
		`{"allOf": [{}, {}]}`:                  "allOf",
		`{"anyOf": []}`:                        "anyOf",
		`{"enum": []}`:                         "enum",
		`{"type": "string", "pattern": "("}`:   "pattern",
		`{"type": "string", "pattern": "a"}`:   "anchored",
		`{"type": "string", "pattern": "^.$"}`: "quotes",
		`{"type": "string", "maxLength": 1e9}`: "maxLength",
		`{"type": "string", "minLength": 3, "maxLength": 2}`:             "minLength",
		`{"type": "string", "format": "color"}`:                          "color",
		`{"type": "object", "properties": {"a": {}}, "required": ["b"]}`: "no property",
		deep: "deep",
		wide: "longer than",
	} {
		_, err := grammar.SchemaPattern([]byte(schema))
		require.ErrorContains(t, err, want, clipped(schema))
	}
}

func clipped(s string) string { return s[:min(80, len(s))] }

// Whatever a schema is, there is a pattern that compiles, or an error.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{`{"type": "object", "properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/b"}]}}, "$defs": {"b": {"type": "array", "items": {"enum": [1, "x"]}}}}`, `true`, `{"type":"string","pattern":"^[a-z]+$"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		p, err := grammar.SchemaPattern(schema)
		if err == nil {
			if err := grammar.Check(p); err != nil && !strings.Contains(err.Error(), "states") && !strings.Contains(err.Error(), "large") {
				t.Errorf("%q: pattern %q: %v", schema, p, err)
			}
		}
	})
}
