package server_test

import (
	"strings"
	"testing"

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
