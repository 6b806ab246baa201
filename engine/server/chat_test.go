package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func user(text any) []js { return []js{{"role": "user", "content": text}} }

// A chat completion has the shape that clients expect, whole and in a stream.
func TestChat(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja", engine: engineOf(4)})
	q := js{"messages": user("write code"), "max_completion_tokens": 20, "ignore_eos": true}
	got := r.ask("/v1/chat/completions", q)
	require.Equal(t, "chat.completion", got["object"])
	require.True(t, strings.HasPrefix(got["id"].(string), "chatcmpl-"))
	m := choice(got, 0)["message"].(js)
	require.Equal(t, "assistant", m["role"])
	require.Equal(t, "length", choice(got, 0)["finish_reason"])
	parts := js{"messages": user([]js{{"type": "text", "text": "write code"}}), "max_completion_tokens": 20, "ignore_eos": true}
	require.Equal(t, m, choice(r.ask("/v1/chat/completions", parts), 0)["message"])

	q["n"], q["temperature"], q["seed"] = 2, 0.9, 4
	got = r.ask("/v1/chat/completions", q)
	q["stream_options"] = js{"include_usage": true, "continuous_usage_stats": true}
	list := r.stream("/v1/chat/completions", q)
	for i := range 2 {
		text, finish, _ := joined(list, i)
		require.Equal(t, choice(got, i)["message"].(js)["content"], text)
		require.Equal(t, choice(got, i)["finish_reason"], finish)
	}
	require.Equal(t, "assistant", choice(list[0], 0)["delta"].(js)["role"])
	last := 0.0
	for _, v := range list {
		require.Equal(t, "chat.completion.chunk", v["object"])
		n := v["usage"].(js)["completion_tokens"].(float64)
		require.GreaterOrEqual(t, n, last)
		last = n
	}
	require.Equal(t, 40., last)

	r.refuse("/v1/chat/completions", js{"messages": []js{}}, 400, "messages")
	r.refuse("/v1/chat/completions", js{}, 400, "messages")
	r.refuse("/v1/chat/completions", js{"messages": []any{nil}}, 400, "messages")
	r.refuse("/v1/chat/completions", js{"messages": []js{{"content": "x"}}}, 400, "messages")
	r.refuse("/v1/chat/completions", js{"messages": user([]js{{"type": "image_url"}})}, 400, "messages")
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "top_logprobs": 3}, 400, "top_logprobs")
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "max_completion_tokens": 9999}, 400, "max_completion_tokens")
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "chat_template": "{{ 1 }}"}, 400, "chat_template")
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "tool_choice": "required"}, 400, "tool_choice")
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "tools": []js{{"type": "magic"}}}, 400, "tools")
}

// A tool that must be called is called, with arguments by its schema; the answer is
// the call alone, whole and in a stream.
func TestForcedTool(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja"})
	tools := []js{{"type": "function", "function": js{"name": "get_weather", "parameters": js{
		"type": "object", "required": []string{"city", "days"}, "properties": js{"city": js{"enum": []string{"Oslo", "Rome"}}, "days": js{"type": "array", "items": js{"type": "integer"}, "maxItems": 2}},
	}}}}
	for _, choose := range []any{"required", js{"type": "function", "function": js{"name": "get_weather"}}} {
		q := js{"messages": user("weather?"), "tools": tools, "tool_choice": choose, "max_tokens": 200, "temperature": 0.8, "seed": 2}
		check := func(call js) {
			require.Equal(t, "function", call["type"])
			require.NotEmpty(t, call["id"])
			f := call["function"].(js)
			require.Equal(t, "get_weather", f["name"])
			var args struct {
				City string
				Days []int
			}
			require.NoError(t, json.Unmarshal([]byte(f["arguments"].(string)), &args))
			require.Contains(t, []string{"Oslo", "Rome"}, args.City)
		}
		c := choice(r.ask("/v1/chat/completions", q), 0)
		require.Equal(t, "tool_calls", c["finish_reason"])
		require.Nil(t, c["message"].(js)["content"])
		require.Len(t, c["message"].(js)["tool_calls"], 1)
		check(c["message"].(js)["tool_calls"].([]any)[0].(js))
		calls, finish := 0, ""
		for _, v := range r.stream("/v1/chat/completions", q) {
			d := choice(v, 0)["delta"].(js)
			if list, ok := d["tool_calls"].([]any); ok {
				calls++
				require.EqualValues(t, 0, list[0].(js)["index"])
				check(list[0].(js))
			}
			require.Empty(t, d["content"])
			if f, ok := choice(v, 0)["finish_reason"].(string); ok {
				finish = f
			}
		}
		require.Equal(t, 1, calls)
		require.Equal(t, "tool_calls", finish)
	}
	r.refuse("/v1/chat/completions", js{"messages": user("x"), "tools": tools, "tool_choice": js{"type": "function", "function": js{"name": "other"}}}, 400, "tool_choice")
}

// Reasoning that a prompt begins comes apart from the content, which is what a
// schema asks for.
func TestReasoning(t *testing.T) {
	r := newRig(t, options{template: "chatml.jinja"})
	q := js{
		"messages": user("think"), "chat_template_kwargs": js{"enable_thinking": true}, "max_tokens": 60, "seed": 1, "temperature": 1,
		"structured_outputs": js{"choice": []string{"yes", "no"}},
	}
	c := choice(r.ask("/v1/chat/completions", q), 0)
	m := c["message"].(js)
	require.NotEmpty(t, m["reasoning"])
	require.NotContains(t, m["reasoning"], "</think>")
	if c["finish_reason"] == "stop" {
		require.Contains(t, []any{"yes", "no"}, m["content"])
	} else {
		require.Empty(t, m["content"])
	}
	q["include_reasoning"] = false
	require.NotContains(t, choice(r.ask("/v1/chat/completions", q), 0)["message"], "reasoning")
}
