package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Prompts may be texts, token ids, or lists of either; n answers each, which differ
// where they are sampled and repeat with the seed.
func TestPromptsAndChoices(t *testing.T) {
	r := newRig(t, options{engine: engineOf(8)})
	ids := r.ask("/tokenize", js{"prompt": code})["tokens"]
	text := r.ask("/v1/completions", js{"prompt": code, "max_tokens": 12, "ignore_eos": true})
	same := r.ask("/v1/completions", js{"prompt": ids, "max_tokens": 12, "ignore_eos": true})
	require.Equal(t, textOf(text), textOf(same))
	both := r.ask("/v1/completions", js{"prompt": []any{ids, ids}, "max_tokens": 12, "ignore_eos": true})
	require.Len(t, both["choices"], 2)
	require.Equal(t, textOf(text), choice(both, 1)["text"])
	require.EqualValues(t, 24, both["usage"].(js)["completion_tokens"])

	q := js{"prompt": []string{code, "type T struct {"}, "n": 3, "max_tokens": 12, "temperature": 1, "seed": 7, "ignore_eos": true}
	first := r.ask("/v1/completions", q)
	require.Len(t, first["choices"], 6)
	seen := map[any]bool{}
	for i := range 6 {
		require.EqualValues(t, i, choice(first, i)["index"])
		seen[choice(first, i)["text"]] = true
	}
	require.Greater(t, len(seen), 4)
	require.Equal(t, first["choices"], r.ask("/v1/completions", q)["choices"])
	list := r.stream("/v1/completions", q)
	for i := range 6 {
		text, finish, _ := joined(list, i)
		require.Equal(t, choice(first, i)["text"], text)
		require.Equal(t, choice(first, i)["finish_reason"], finish)
	}
	delete(q, "stream")
	delete(q, "seed")
	require.NotEqual(t, first["choices"], r.ask("/v1/completions", q)["choices"], "no seed is another one each time")
	require.Contains(t, textOf(r.ask("/v1/completions", js{"prompt": code, "max_tokens": 4, "echo": true})), code)
	long := strings.Repeat(code, 100)
	require.Equal(t, 509., r.ask("/v1/completions", js{"prompt": long, "max_tokens": 3, "truncate_prompt_tokens": -1})["usage"].(js)["prompt_tokens"])
	require.Equal(t, 20., r.ask("/v1/completions", js{"prompt": long, "max_tokens": 3, "truncate_prompt_tokens": 20})["usage"].(js)["prompt_tokens"])
}

// A stop string ends the text before it, wherever it lies across tokens and steps,
// and no part of it is ever told, in a stream either.
func TestStopStrings(t *testing.T) {
	r := newRig(t, options{})
	const n = 60
	full := textOf(r.ask("/v1/completions", js{"prompt": code, "max_tokens": n, "ignore_eos": true}))
	for from := 5; from < len(full)-12; from += 7 {
		for _, length := range []int{1, 3, 10} {
			stop := full[from : from+length]
			want := full[:strings.Index(full, stop)]
			q := js{"prompt": code, "max_tokens": n, "ignore_eos": true, "stop": []string{"never there", stop}}
			got := r.ask("/v1/completions", q)
			require.Equal(t, want, textOf(got), "stop %q in %q", stop, full)
			require.Equal(t, "stop", choice(got, 0)["finish_reason"])
			require.Equal(t, stop, choice(got, 0)["stop_reason"])
			text, finish, reason := joined(r.stream("/v1/completions", q), 0)
			require.Equal(t, want, text)
			require.Equal(t, "stop", finish)
			require.Equal(t, stop, reason)
		}
	}
	stop := full[20:25]
	got := r.ask("/v1/completions", js{"prompt": code, "max_tokens": n, "ignore_eos": true, "stop": stop, "include_stop_str_in_output": true})
	require.Equal(t, full[:strings.Index(full, stop)+5], textOf(got))

	ids := choice(r.ask("/v1/completions", js{"prompt": code, "max_tokens": n, "ignore_eos": true, "return_token_ids": true}), 0)["token_ids"].([]any)
	got = r.ask("/v1/completions", js{"prompt": code, "max_tokens": n, "ignore_eos": true, "stop_token_ids": []any{ids[9]}, "return_token_ids": true})
	require.Equal(t, "stop", choice(got, 0)["finish_reason"])
	require.Equal(t, ids[9], choice(got, 0)["stop_reason"])
	require.LessOrEqual(t, len(choice(got, 0)["token_ids"].([]any)), 10)
	require.True(t, strings.HasPrefix(full, textOf(got)))
}

// Log-probabilities belong to the tokens, sum to at most 1 and have the chosen token
// at the top where it was chosen greedily; drafts change nothing.
func TestLogProbs(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja"})
	q := js{"prompt": code, "max_tokens": 20, "ignore_eos": true, "logprobs": 4}
	got := r.ask("/v1/completions", q)
	logs := choice(got, 0)["logprobs"].(js)
	var text strings.Builder
	for i, tok := range logs["tokens"].([]any) {
		require.EqualValues(t, text.Len(), logs["text_offset"].([]any)[i])
		text.WriteString(tok.(string))
		top := logs["top_logprobs"].([]any)[i].(js)
		require.GreaterOrEqual(t, len(top), 3)
		sum := 0.0
		for _, l := range top {
			sum += math.Exp(l.(float64))
			require.LessOrEqual(t, l, logs["token_logprobs"].([]any)[i], "greedy takes the likeliest")
		}
		require.LessOrEqual(t, sum, 1.0000001)
	}
	require.Equal(t, textOf(got), text.String())
	q["speculation"] = js{"strategy": "none"}
	require.Equal(t, logs, choice(r.ask("/v1/completions", q), 0)["logprobs"])
	var streamed []any
	for _, v := range r.stream("/v1/completions", q) {
		if l, ok := choice(v, 0)["logprobs"].(js); ok {
			streamed = append(streamed, l["token_logprobs"].([]any)...)
		}
	}
	require.Equal(t, logs["token_logprobs"], streamed)

	c := js{"messages": []js{{"role": "user", "content": "hi"}}, "max_tokens": 10, "ignore_eos": true, "logprobs": true, "top_logprobs": 2}
	for _, l := range choice(r.ask("/v1/chat/completions", c), 0)["logprobs"].(js)["content"].([]any) {
		require.Len(t, l.(js)["top_logprobs"], 2)
		require.NotEmpty(t, l.(js)["bytes"])
	}
}

// Sampling fields reach the sampler: each changes the answer as it should.
func TestSamplingFields(t *testing.T) {
	r := newRig(t, options{})
	base := js{"prompt": code, "max_tokens": 60, "ignore_eos": true, "return_token_ids": true}
	with := func(extra js) []any {
		q := js{}
		for k, v := range base {
			q[k] = v
		}
		for k, v := range extra {
			q[k] = v
		}
		return choice(r.ask("/v1/completions", q), 0)["token_ids"].([]any)
	}
	greedy := with(nil)
	for _, one := range []js{{"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.}} {
		one["temperature"], one["seed"] = 1, 3
		require.Equal(t, greedy, with(one), "%v leaves the likeliest", one)
	}
	hot := with(js{"temperature": 1, "seed": 3})
	require.NotEqual(t, greedy, hot)
	for _, spec := range []js{{"strategy": "none"}, {"strategy": "ngram", "k": 4}, {"strategy": "mtp", "k": 2}} {
		require.Equal(t, hot, with(js{"temperature": 1, "seed": 3, "speculation": spec}), "coupled draws the same tokens")
	}
	banned := fmt.Sprint(greedy[0])
	require.NotEqual(t, greedy[0], with(js{"logit_bias": js{banned: -100}})[0])
	forced := with(js{"logit_bias": js{"65": 100}})
	require.EqualValues(t, 65, forced[5])
	for _, p := range []string{"presence_penalty", "frequency_penalty", "repetition_penalty"} {
		require.NotEqual(t, greedy, with(js{p: 2}), p)
	}
}

// What constrains an answer is kept to, drafted or not.
func TestStructured(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja"})
	ask := func(extra js) string {
		q := js{"prompt": "var x = ", "max_tokens": 200, "temperature": 1, "seed": 5}
		for k, v := range extra {
			q[k] = v
		}
		got := r.ask("/v1/completions", q)
		require.Equal(t, "stop", choice(got, 0)["finish_reason"], "%v", extra)
		q["speculation"] = js{"strategy": "none"}
		require.Equal(t, textOf(got), textOf(r.ask("/v1/completions", q)), "%v", extra)
		return textOf(got)
	}
	require.Regexp(t, `^[a-c]{3,9}-\d$`, ask(js{"structured_outputs": js{"regex": `[a-c]{3,9}-\d`}}))
	require.Contains(t, []string{"yes", "no (maybe)"}, ask(js{"structured_outputs": js{"choice": []string{"yes", "no (maybe)"}}}))
	schema := js{"type": "object", "required": []string{"name", "tags"}, "properties": js{
		"name": js{"type": "string", "maxLength": 8}, "age": js{"type": "integer"}, "tags": js{"type": "array", "maxItems": 3, "items": js{"enum": []string{"a", "b"}}},
	}}
	for i, text := range []string{
		ask(js{"structured_outputs": js{"json": schema}}),
		ask(js{"response_format": js{"type": "json_schema", "json_schema": js{"name": "x", "schema": schema}}}),
	} {
		var v struct {
			Name string
			Age  *int
			Tags []string
		}
		require.NoError(t, json.Unmarshal([]byte(text), &v), "%d: %s", i, text)
		require.LessOrEqual(t, len([]rune(v.Name)), 8)
	}
	r.refuse("/v1/completions", js{"prompt": "a", "structured_outputs": js{"regex": "("}}, 400, "structured_outputs")
	r.refuse("/v1/completions", js{"prompt": "a", "structured_outputs": js{}}, 400, "structured_outputs")
	r.refuse("/v1/completions", js{"prompt": "a", "structured_outputs": js{"regex": "a", "grammar": "root ::= x"}}, 400, "structured_outputs")
	r.refuse("/v1/completions", js{"prompt": "a", "structured_outputs": js{"structural_tag": js{}}}, 400, "structured_outputs")
	r.refuse("/v1/completions", js{"prompt": "a", "structured_outputs": js{"regex": "((.?){300}){3}"}}, 400, "structured_outputs")
	r.refuse("/v1/completions", js{"prompt": "a", "response_format": js{"type": "json_schema"}}, 400, "response_format")
	r.refuse("/v1/completions", js{"prompt": "a", "response_format": js{"type": "json_schema", "json_schema": js{"schema": js{"type": "string", "minimum": 3}}}}, 400, "response_format")
}

// Steps of a request, where asked for, say what was drafted and what stood.
func TestSteps(t *testing.T) {
	r := newRig(t, options{})
	q := js{"prompt": code, "max_tokens": 30, "ignore_eos": true, "return_token_ids": true, "speculation": js{"steps": true}}
	var ids []any
	steps, accepted := 0, 0.0
	for _, v := range r.stream("/v1/completions", q) {
		list, _ := choice(v, 0)["speculation"].([]any)
		for _, s := range list {
			s := s.(js)
			ids = append(ids, s["emitted"].([]any)...)
			accepted += s["accepted"].(float64)
			steps++
		}
	}
	require.Len(t, ids, 30)
	require.Positive(t, accepted)
	delete(q, "stream")
	got := r.ask("/v1/completions", q)
	require.Equal(t, ids, choice(got, 0)["token_ids"])
	require.Len(t, choice(got, 0)["speculation"], steps)
	require.EqualValues(t, accepted, draftUsage(got)["accepted"])
	require.EqualValues(t, steps-1, draftUsage(got)["steps"], "the first one reads the prompt")
}

// Every field is checked, and the error names it.
func TestRefusals(t *testing.T) {
	r := newRig(t, options{})
	for _, c := range []struct {
		body   string
		status int
		param  string
	}{
		{`{"prompt": "a", "temperature": -1}`, 400, ""},
		{`{"prompt": "a", "temperature": "hot"}`, 400, "temperature"},
		{`{"prompt": "a", "top_p": 0}`, 400, "top_p"},
		{`{"prompt": "a", "top_k": -5}`, 400, ""},
		{`{"prompt": "a", "min_p": 2}`, 400, ""},
		{`{"prompt": "a", "repetition_penalty": 0}`, 400, "repetition_penalty"},
		{`{"prompt": "a", "n": 0}`, 400, "n"},
		{`{"prompt": "a", "n": 1000}`, 400, "n"},
		{`{"prompt": "a", "n": 1e99}`, 400, "n"},
		{`{"prompt": "a", "seed": 1.5}`, 400, "seed"},
		{`{"prompt": "a", "max_tokens": 0}`, 400, "max_tokens"},
		{`{"prompt": "a", "max_tokens": 512}`, 400, "max_tokens"},
		{`{"prompt": "a", "logprobs": 21}`, 400, "logprobs"},
		{`{"prompt": "a", "logprobs": -1}`, 400, "logprobs"},
		{`{"prompt": "a", "logprobs": 1, "echo": true}`, 400, "echo"},
		{`{"prompt": "a", "prompt_logprobs": 1}`, 400, "prompt_logprobs"},
		{`{"prompt": "a", "prompt_logprobs": -2}`, 400, "prompt_logprobs"},
		{`{"prompt": "a", "prompt_logprobs": 1, "stream": true}`, 400, "prompt_logprobs"},
		{`{"prompt": "a", "stop": ""}`, 400, "stop"},
		{`{"prompt": "a", "stop": 5}`, 400, ""},
		{`{"prompt": "a", "stop_token_ids": [99999]}`, 400, "stop_token_ids"},
		{`{"prompt": "a", "logit_bias": {"x": 1}}`, 400, "logit_bias"},
		{`{"prompt": "a", "logit_bias": {"4": 101}}`, 400, ""},
		{`{"prompt": "a", "best_of": 3, "n": 4}`, 400, "best_of"},
		{`{"prompt": "a", "best_of": 999}`, 400, "best_of"},
		{`{"prompt": "a", "best_of": 3, "stream": true}`, 400, "best_of"},
		{`{"prompt": "a", "deadline_ms": 0}`, 400, "deadline_ms"},
		{`{"prompt": "a", "guided_json": {"type": "object"}}`, 400, "guided_json"},
		{`{"prompt": "a", "suffix": "b"}`, 400, "suffix"},
		{`{"prompt": "a", "speculation": {"strategy": "magic"}}`, 400, "speculation.strategy"},
		{`{"prompt": "a", "speculation": {"k": 9}}`, 400, "speculation.k"},
		{`{"prompt": "a", "speculation": {"rule": "hope"}}`, 400, "speculation.rule"},
		{`{"prompt": "a", "temperature": 1, "speculation": {"rule": "greedy"}}`, 400, "speculation.rule"},
		{`{"prompt": "", "max_tokens": 3}`, 400, "prompt"},
		{`{"prompt": []}`, 400, "prompt"},
		{`{"prompt": {}}`, 400, ""},
		{`{"prompt": [1, -4]}`, 400, "prompt"},
		{`{"prompt": [99999]}`, 400, "prompt"},
		{`{"prompt": "a", "truncate_prompt_tokens": 0}`, 400, "truncate_prompt_tokens"},
		{`{"max_tokens": 3}`, 400, "prompt"},
		{`{"prompt": "a", "model": "gpt-9"}`, 404, "model"},
		{`[]`, 400, ""}, {`null`, 400, ""}, {`{`, 400, ""}, {``, 400, ""}, {"{\"prompt\": \"\xff\"}", 400, ""},
		{`{"prompt": "` + strings.Repeat("a b ", 4000) + `"}`, 400, "max_tokens"},
		{`{"messages": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400, ""},
		{`{"prompt": "a", "best_of": null, "suffix": "", "user": "me", "made_up": {"x": 1}, "max_tokens": 1}`, 200, ""},
	} {
		if c.status == 200 {
			r.ask("/v1/completions", c.body)
			continue
		}
		msg := r.refuse("/v1/completions", c.body, c.status, c.param)
		require.Less(t, len(msg), 300, "%s", c.body)
		require.NotRegexp(t, regexp.MustCompile(`request [0-9a-z.]+/`), msg, "no ids of the inside")
	}
	r.refuse("/v1/chat/completions", js{"messages": []js{{"role": "user", "content": "x"}}}, 400, "messages")
	status, text, h := r.do("GET", "/v1/completions", nil)
	require.Equal(t, 405, status, "%s", text)
	require.Equal(t, "POST", h.Get("Allow"))
	status, _, _ = r.do("GET", "/nothing", nil)
	require.Equal(t, 404, status)
	status, text, _ = r.do("POST", "/v1/completions", "prompt=a", "Content-Type", "application/x-www-form-urlencoded")
	require.Equal(t, 415, status, "%s", text)
	status, text, _ = r.do("POST", "/v1/completions", make([]byte, 50<<20))
	require.Equal(t, 413, status, "%s", text)
}

// Token endpoints and information.
func TestInformation(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja"})
	got := r.ask("/tokenize", js{"prompt": "func main()", "return_token_strs": true})
	require.EqualValues(t, len(got["tokens"].([]any)), got["count"])
	require.EqualValues(t, 512, got["max_model_len"])
	require.Equal(t, "func main()", r.ask("/detokenize", js{"tokens": got["tokens"]})["prompt"])
	got = r.ask("/tokenize", js{"messages": []js{{"role": "user", "content": "hi"}}})
	require.Contains(t, r.ask("/detokenize", js{"tokens": got["tokens"]})["prompt"], "assistant")
	r.refuse("/tokenize", js{"prompt": "a", "messages": []js{{"role": "user", "content": "hi"}}}, 400, "prompt")
	r.refuse("/detokenize", js{"tokens": []int{-1}}, 400, "tokens")
	for _, path := range []string{"/v1/models", "/v1/models/embedded", "/health", "/ready", "/version", "/metrics"} {
		status, text, _ := r.do("GET", path, nil)
		require.Equal(t, 200, status, "%s: %s", path, text)
	}
	status, _, _ := r.do("GET", "/v1/models/other", nil)
	require.Equal(t, 404, status)
	_, _, h := r.do("POST", "/v1/completions", js{"prompt": "a", "max_tokens": 1}, "X-Request-Id", "mine-1")
	require.Equal(t, "mine-1", h.Get("X-Request-Id"))
	_, text, _ := r.do("GET", "/metrics", nil)
	for _, name := range []string{
		"exacta_emitted_tokens_total", "exacta_drafted_tokens_total", "exacta_kv_pages", `vllm:generation_tokens_total{engine="0",model_name="embedded"} 1`,
		"vllm:time_to_first_token_seconds_bucket", `vllm:request_success_total{engine="0",finished_reason="length",model_name="embedded"} 1`, "vllm:kv_cache_usage_perc",
	} {
		require.Contains(t, string(text), name)
	}
}

// The live page is one file that asks nothing of any other host.
func TestPage(t *testing.T) {
	r := newRig(t, options{})
	status, text, h := r.do("GET", "/", nil)
	require.Equal(t, 200, status)
	require.Contains(t, h.Get("Content-Type"), "text/html")
	require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
	page := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
	require.NotRegexp(t, `https?://|//[a-z0-9-]+\.[a-z]`, page)
	status, _, _ = r.do("GET", "/page", nil)
	require.Equal(t, 404, status)
}
