package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// Whatever the body is, the answer is one of the known ones, in JSON or as events,
// and nothing is left in the engine.
func FuzzBody(f *testing.F) {
	for _, s := range []string{
		`{"prompt": "a", "max_tokens": 1}`, `{"prompt": [1, 2], "n": 2, "stream": true, "logprobs": 1}`, `{"messages": [{"role": "user", "content": "x"}]}`,
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}], "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}`,
		`{"prompt": "a", "structured_outputs": {"regex": "a{1,9}"}, "stop": ["a"], "temperature": 2, "logit_bias": {"5": 1}}`,
		`{"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"a": {}}}}}}`,
		`{"prompt": "a", "speculation": {"strategy": "ngram", "k": 2, "rule": "coupled", "steps": true}, "echo": true, "return_token_ids": true}`, "\xff", `{"a":`, `[]`,
	} {
		f.Add([]byte(s))
	}
	r := fuzzRig(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"} {
			w := httptest.NewRecorder()
			q := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
			r.s.ServeHTTP(w, q)
			if err := strange(w); err != nil {
				t.Fatalf("%s %q: %v", path, body, err)
			}
		}
		if n := r.s.OpenAnswers(); n != 0 {
			t.Fatalf("%q: %d answers are left", body, n)
		}
	})
}

// strange is what is wrong with an answer, whatever was asked; a grammar that allows
// no token is found while the answer is made.
func strange(w *httptest.ResponseRecorder) error {
	switch text := w.Body.Bytes(); {
	case !slices.Contains([]int{200, 400, 404, 500, 504}, w.Code):
		return fmt.Errorf("status %d: %s", w.Code, text)
	case w.Header().Get("Content-Type") == "application/json" && !json.Valid(text):
		return fmt.Errorf("no JSON: %s", text)
	case w.Code == 500 && !bytes.Contains(text, []byte("grammar")):
		return fmt.Errorf("%s", text)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
