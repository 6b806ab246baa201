package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
