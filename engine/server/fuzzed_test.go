package server_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// fuzzedFields are fields of requests with values that are taken, refused or absurd.
var fuzzedFields = map[string][]string{
	"prompt":                {`"a"`, `"func main() {"`, `[1, 2, 3]`, `["a", "b"]`, `[[5], [6, 7]]`, `""`, `[]`, `[-1]`, `[99999999]`, `{"a": 1}`, `"\ud800"`, `"\u0000"`, `[1.5]`, `[[]]`},
	"messages":              {`[{"role": "user", "content": "x"}]`, `[{"role": "user", "content": [{"type": "text", "text": "x"}]}]`, `[{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "content": "y"}]`, `[]`, `[{}]`, `[1]`, `"x"`, `[{"role": "wizard", "content": "x"}]`},
	"model":                 {`"embedded"`, `"gpt"`, `5`, `null`},
	"max_tokens":            {`1`, `2`, `3`, `0`, `-1`, `1e9`, `"3"`, `2.5`, `9223372036854775808`},
	"max_completion_tokens": {`1`, `3`, `-7`}, "n": {`1`, `2`, `3`, `0`, `1000000`}, "best_of": {`1`, `2`, `3`, `-3`}, "prompt_logprobs": {`2`, `-1`}, "deadline_ms": {`100000`, `1`, `-1`},
	"stream": {`true`, `false`, `1`}, "stream_options": {`{"include_usage": true}`, `{"continuous_usage_stats": true}`, `5`},
	"temperature": {`0`, `0.5`, `2`, `-1`, `1e39`, `"hot"`}, "top_p": {`0.9`, `1`, `0`, `1.5`}, "top_k": {`1`, `5`, `-1`, `-2`, `99999`}, "min_p": {`0.1`, `2`},
	"repetition_penalty": {`1.1`, `0`, `11`}, "presence_penalty": {`1`, `-9`}, "frequency_penalty": {`0.5`, `9`}, "seed": {`1`, `-5`, `1.5`},
	"logit_bias": {`{"5": 1}`, `{"5": -100, "6": 100}`, `{"x": 1}`, `{"99999": 1}`}, "logprobs": {`1`, `0`, `true`, `21`, `-1`}, "top_logprobs": {`2`, `30`},
	"stop": {`"a"`, `["a", "bc"]`, `""`, `[1]`, `["` + strings.Repeat("x", 300) + `"]`}, "stop_token_ids": {`[1]`, `[-1]`, `"x"`}, "ignore_eos": {`true`}, "echo": {`true`},
	"response_format":    {`{"type": "json_object"}`, `{"type": "text"}`, `{"type": "json_schema", "json_schema": {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}}`, `{"type": "json_schema"}`, `{"type": "xml"}`},
	"structured_outputs": {`{"regex": "[a-z]{1,5}"}`, `{"regex": "("}`, `{"regex": "(a{1,90}){1,90}"}`, `{"choice": ["a", "b"]}`, `{"choice": []}`, `{"json": {"type": "array"}}`, `{"json": {"$ref": "#"}}`, `{"grammar": "x"}`},
	"tools":              {`[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]`, `[]`, `[{"type": "magic"}]`}, "tool_choice": {`"auto"`, `"required"`, `"none"`, `{"type": "function", "function": {"name": "g"}}`},
	"speculation":      {`{"strategy": "ngram", "k": 2}`, `{"k": 8, "steps": true}`, `{"k": 99}`, `{"strategy": "none"}`, `{"rule": "rejection"}`, `{"rule": "hope"}`},
	"return_token_ids": {`true`}, "truncate_prompt_tokens": {`1`, `-1`, `0`}, "session_id": {`"s"`}, "priority": {`1`, `-9`}, "cache_salt": {`"x"`}, "suffix": {`"b"`}, "tokens": {`[1, 2]`, `[-1]`},
	"add_special_tokens": {`false`}, "continue_final_message": {`true`}, "chat_template_kwargs": {`{"a": 1}`, `[]`},
}

// fuzzedNames are their names in order.
var fuzzedNames = sortedKeys(fuzzedFields)

// fuzzed is request i: its path, and a body that is often right in most of its fields
// and sometimes no JSON at all.
func fuzzed(i int) (path string, body []byte) {
	r := rand.New(rand.NewPCG(uint64(i), 17))
	path = []string{"/v1/completions", "/v1/completions", "/v1/chat/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}[r.IntN(6)]
	fields := map[string]bool{"prompt": r.IntN(9) > 0, "messages": r.IntN(9) > 0}
	if strings.Contains(path, "chat") {
		fields["prompt"] = false
	} else {
		fields["messages"] = false
	}
	for range r.IntN(5) {
		fields[fuzzedNames[r.IntN(len(fuzzedNames))]] = true
	}
	var list []string
	for _, name := range fuzzedNames {
		if values := fuzzedFields[name]; fields[name] {
			at := r.IntN(len(values))
			if r.IntN(3) > 0 {
				at = 0
			}
			list = append(list, fmt.Sprintf("%q: %s", name, values[at]))
		}
	}
	body = []byte("{" + strings.Join(list, ", ") + "}")
	if r.IntN(4) == 0 {
		return path, body
	}
	for range 1 + r.IntN(4) {
		at, to := r.IntN(len(body)), r.IntN(len(body))
		switch at, to = min(at, to), max(at, to); r.IntN(4) {
		case 0:
			body[at] = byte(r.Uint32())
		case 1:
			body = append(body[:at:at], body[to:]...)
		case 2:
			body = append(body[:to:to], body[at:]...)
		case 3:
			body = append(append(body[:at:at], []string{"null", "-0", "1e400", `"\ud800"`, "[[[[", "}", `\`, "\xff"}[r.IntN(8)]...), body[at:]...)
		}
		if len(body) == 0 {
			return path, []byte("{")
		}
	}
	return path, body
}

// Many fuzzed requests at a time: no panic, no answer that is not one of the known
// ones, no request that never ends, and none left in the engine. EXACTA_SOAK makes it
// a million, or as many as EXACTA_REQUESTS says, from EXACTA_FIRST on.
func TestFuzzedRequests(t *testing.T) {
	n, first := 2000, 0
	if os.Getenv("EXACTA_SOAK") != "" {
		n = 1_000_000
	}
	for name, to := range map[string]*int{"EXACTA_REQUESTS": &n, "EXACTA_FIRST": &first} {
		if v := os.Getenv(name); v != "" {
			var err error
			*to, err = strconv.Atoi(v)
			require.NoError(t, err)
		}
	}
	r := fuzzRig(t)
	var next, answered atomic.Int64
	var mu sync.Mutex
	var bad []string
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				path, body := fuzzed(first + i)
				w := httptest.NewRecorder()
				q := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
				r.s.ServeHTTP(w, q)
				if w.Code == http.StatusOK {
					answered.Add(1)
				}
				if err := strange(w); err != nil {
					mu.Lock()
					bad = append(bad, fmt.Sprintf("request %d, %s %q: %v", first+i, path, body, err))
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	require.Empty(t, bad)
	require.Zero(t, r.s.OpenAnswers())
	require.Greater(t, int(answered.Load()), n/20, "the test is to have requests that are answered")
	require.Less(t, int(answered.Load()), n*19/20, "and some that are not")
	t.Logf("%d requests from %d on, %d answered", n, first, answered.Load())
	require.Equal(t, "length", choice(r.ask("/v1/completions", js{"prompt": code, "max_tokens": 2, "ignore_eos": true}), 0)["finish_reason"])
}
