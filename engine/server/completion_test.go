package server_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/server"
)

const code = "package main\n\nimport \"fmt\"\n\nfunc main() {\n"

// A text completion has the shape that clients expect, and the tokens of plain
// decoding whatever the strategy; a stream gives the same text.
func TestCompletion(t *testing.T) {
	r := newRig(t, options{})
	ask := func(extra js) js {
		q := js{"model": "embedded", "prompt": code, "max_tokens": 40, "ignore_eos": true, "return_token_ids": true}
		for k, v := range extra {
			q[k] = v
		}
		return q
	}
	plain := r.ask("/v1/completions", ask(js{"speculation": js{"strategy": "none"}}))
	require.Equal(t, "text_completion", plain["object"])
	require.True(t, strings.HasPrefix(plain["id"].(string), "cmpl-"))
	require.Equal(t, "embedded", plain["model"])
	require.Equal(t, "length", choice(plain, 0)["finish_reason"])
	u := plain["usage"].(js)
	require.EqualValues(t, 40, u["completion_tokens"])
	require.Equal(t, u["total_tokens"], u["prompt_tokens"].(float64)+40)
	require.EqualValues(t, 0, draftUsage(plain)["drafted"])
	require.Len(t, choice(plain, 0)["token_ids"], 40)

	for _, spec := range []js{nil, {"strategy": "ngram", "k": 5}, {"strategy": "mtp", "k": 1, "rule": "greedy"}, {"k": 8}, {"strategy": "mtp", "k": 0}} {
		got := r.ask("/v1/completions", ask(js{"speculation": spec}))
		require.Equal(t, choice(plain, 0)["token_ids"], choice(got, 0)["token_ids"])
		require.Equal(t, textOf(plain), textOf(got))
		d := draftUsage(got)
		require.Equal(t, true, d["exact"])
		require.Equal(t, false, d["simulated"])
		require.EqualValues(t, 40, d["emitted"])
		require.LessOrEqual(t, d["accepted"], d["drafted"])
		q := ask(js{"speculation": spec, "stream_options": js{"include_usage": true}})
		list := r.stream("/v1/completions", q)
		text, finish, _ := joined(list, 0)
		require.Equal(t, textOf(plain), text)
		require.Equal(t, "length", finish)
		last := list[len(list)-1]
		require.Empty(t, last["choices"])
		require.EqualValues(t, 40, last["usage"].(js)["completion_tokens"])
	}
	require.Positive(t, draftUsage(r.ask("/v1/completions", ask(nil)))["accepted"])
}

// Of best_of answers those are told that are likeliest by token, these first.
func TestBestOf(t *testing.T) {
	r := newRig(t, options{})
	q := js{"prompt": code, "max_tokens": 12, "ignore_eos": true, "temperature": 1.5, "seed": 5, "n": 6, "logprobs": 0, "return_token_ids": true}
	all := r.ask("/v1/completions", q)
	type answer struct {
		text string
		mean float64
	}
	var want []answer
	for i := range 6 {
		sum := 0.0
		for _, l := range choice(all, i)["logprobs"].(js)["token_logprobs"].([]any) {
			sum += l.(float64)
		}
		want = append(want, answer{choice(all, i)["text"].(string), sum / 12})
	}
	slices.SortStableFunc(want, func(a, b answer) int {
		if a.mean > b.mean {
			return -1
		}
		return 1
	})
	require.NotEqual(t, want[0].text, choice(all, 0)["text"], "the test is to reorder")
	q["n"], q["best_of"] = 2, 6
	delete(q, "logprobs")
	best := r.ask("/v1/completions", q)
	require.Len(t, best["choices"], 2)
	for i := range 2 {
		require.Equal(t, want[i].text, choice(best, i)["text"])
		require.EqualValues(t, i, choice(best, i)["index"])
		require.Nil(t, choice(best, i)["logprobs"])
	}
	require.EqualValues(t, 72, best["usage"].(js)["completion_tokens"])
}

// An answer that is not there by its deadline ends with an error that says so, and
// the next request is not touched.
func TestDeadline(t *testing.T) {
	r := newRig(t, options{slow: 5 * time.Millisecond})
	q := js{"prompt": code, "max_tokens": 400, "ignore_eos": true, "deadline_ms": 60, "speculation": js{"strategy": "none"}}
	require.Contains(t, r.refuse("/v1/completions", q, http.StatusGatewayTimeout, "deadline_ms"), "deadline")
	q["stream"] = true
	status, text, _ := r.do(http.MethodPost, "/v1/completions", q)
	require.Equal(t, http.StatusOK, status)
	list, err := events(text)
	require.NoError(t, err)
	require.Contains(t, list[len(list)-1]["error"].(js)["message"], "deadline")
	require.Greater(t, len(list), 1, "what was there in time is told")
	require.Zero(t, r.s.OpenAnswers())
	q["max_tokens"], q["deadline_ms"], q["stream"] = 5, 60_000, false
	require.Equal(t, "length", choice(r.ask("/v1/completions", q), 0)["finish_reason"])
}

// The log-probabilities of a prompt are those that its tokens have as answers to what
// is before them, as a field and in front of an echo, with the cache of a twin there.
func TestPromptLogProbs(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja", engine: engine.Config{PrefixCache: true, PromptLogits: true, Chunk: 32}, change: func(c *server.Config) { c.PromptLogs = true }})
	ids := r.ask("/tokenize", js{"prompt": strings.Repeat(code, 8)})["tokens"].([]any)
	q := js{"prompt": ids, "max_tokens": 3, "ignore_eos": true, "logprobs": 2}
	r.ask("/v1/completions", q)
	q["prompt_logprobs"], q["echo"] = 3, true
	answer := choice(r.ask("/v1/completions", q), 0)
	logs, own := answer["logprobs"].(js), answer["prompt_logprobs"].([]any)
	require.Len(t, own, len(ids))
	require.Len(t, logs["tokens"], len(ids)+3)
	require.Nil(t, own[0])
	require.Nil(t, logs["token_logprobs"].([]any)[0])
	require.Nil(t, logs["top_logprobs"].([]any)[0])
	require.True(t, strings.HasPrefix(answer["text"].(string), code))
	offsets := logs["text_offset"].([]any)
	require.EqualValues(t, len(strings.Repeat(code, 8)), offsets[len(ids)])
	for _, at := range []int{1, 5, 33, len(ids) - 1} {
		next := js{"prompt": ids[:at], "max_tokens": 1, "ignore_eos": true, "logprobs": 3, "return_token_ids": true}
		likeliest := choice(r.ask("/v1/completions", next), 0)
		first := likeliest["logprobs"].(js)["token_logprobs"].([]any)[0].(float64)
		place := own[at].(js)
		best := place[strconv.Itoa(int(likeliest["token_ids"].([]any)[0].(float64)))].(js)
		require.EqualValues(t, 1, best["rank"])
		require.Equal(t, first, best["logprob"])
		this := place[strconv.Itoa(int(ids[at].(float64)))].(js)
		require.LessOrEqual(t, this["logprob"], first)
		require.Equal(t, logs["token_logprobs"].([]any)[at], this["logprob"])
		if this["rank"].(float64) > 3 {
			require.Len(t, place, 4)
		} else {
			require.Len(t, place, 3)
		}
	}
	delete(q, "prompt_logprobs")
	list := r.stream("/v1/completions", q)
	require.Equal(t, logs["token_logprobs"].([]any)[:len(ids)], choice(list[0], 0)["logprobs"].(js)["token_logprobs"].([]any)[:len(ids)])
	chat := r.ask("/v1/chat/completions", js{"messages": []js{{"role": "user", "content": "hi"}}, "max_tokens": 2, "prompt_logprobs": 0, "return_token_ids": true})
	require.Len(t, chat["prompt_logprobs"], len(chat["prompt_token_ids"].([]any)))
}
