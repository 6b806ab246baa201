package server

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/chat"
)

func named(t *testing.T, mark string) family {
	t.Helper()
	tmpl, err := chat.Parse("t", "{# "+mark+" </think> #}", nil)
	require.NoError(t, err)
	return familyOf(tmpl)
}

// whole joins what was said.
func whole(list []said) (reasoning, content string, calls []toolCall) {
	for _, s := range list {
		reasoning += s.reasoning
		content += s.content
		if s.call != nil {
			calls = append(calls, *s.call)
		}
	}
	return reasoning, content, calls
}

// However the text is cut, the same reasoning, content and calls come of it.
func TestSpeech(t *testing.T) {
	kinds := argumentKinds{"f": {"s": "string", "n": "integer"}}
	for _, c := range []struct {
		mark, prompt, text string
		tools              bool
		reasoning, content string
		calls              []toolCall
	}{
		{"<tool_call>", "", "plain < text </think>", true, "", "plain < text </think>", nil},
		{"<tool_call>", "", "<think>\nhm\n</think>\n\nso <thi", true, "hm\n", "so <thi", nil},
		{"<tool_call>", "x<think>\n", "hm</think>yes<think>no", false, "hm", "yes<think>no", nil},
		{"<tool_call>", "x<think>\n", "never ends</thin", false, "never ends</thin", "", nil},
		{"<tool_call>", "", "<think>a</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call>", true, "a", "", []toolCall{{"f", `{"n": 1}`}, {"g", "{}"}}},
		{"<tool_call>", "", "I call <tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call> now", true, "", "I call now", []toolCall{{"f", "{}"}}},
		{"<tool_call>", "", "<tool_call>not JSON</tool_call>", true, "", "<tool_call>not JSON</tool_call>", nil},
		{"<tool_call>", "", "<tool_call>{\"name\": \"f\"}</tool_call>", false, "", "<tool_call>{\"name\": \"f\"}</tool_call>", nil},
		{"<tool_call>", "", "<tool_call>{\"name\": \"f\"", true, "", "<tool_call>{\"name\": \"f\"", nil},
		{"<function=", "", "<tool_call>\n<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>", true, "", "", []toolCall{{"f", `{"s": "12", "n": 12}`}}},
		{"<arg_key>", "", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a \"b\"</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", true, "", "", []toolCall{{"f", `{"s": "a \"b\"", "n": 3}`}}},
		{"<｜tool▁calls▁begin｜>", "", "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", true, "", "ok", []toolCall{{"f", `{"n": 1}`}, {"g", "{}"}}},
		{"<|python_tag|>", "", `<|python_tag|>{"name": "f", "parameters": {"n": 1}}; {"name": "g", "parameters": {}}`, true, "", "", []toolCall{{"f", `{"n": 1}`}, {"g", "{}"}}},
		{"<|python_tag|>", "", `{"x": 1} is no call`, true, "", `{"x": 1} is no call`, nil},
		{"<|python_tag|>", "", `Hello {`, true, "", `Hello {`, nil},
	} {
		f := named(t, c.mark)
		r := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			s := newSpeech(f, c.prompt, c.tools, kinds)
			var got []said
			for rest := c.text; rest != ""; {
				n := min(len(rest), 1+r.IntN(12))
				got = append(got, s.push(rest[:n])...)
				rest = rest[n:]
			}
			got = append(got, s.end()...)
			reasoning, content, calls := whole(got)
			require.Equal(t, c.reasoning, reasoning, c.text)
			require.Equal(t, c.content, content, c.text)
			require.Equal(t, c.calls, calls, c.text)
		}
	}
}

// without matches what does not contain the mark, up to the mark, and nothing else.
func TestWithout(t *testing.T) {
	const mark = "</think>"
	re := regexp.MustCompile("^(?:" + without(mark) + mark + ")$")
	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"<", "</", "</t", "</think", ">", "think", "x", "é", "/", "n", "k", "<</", "t>"}
	for range 20000 {
		var b strings.Builder
		for range r.IntN(9) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		text := b.String()
		all := text + mark
		require.Equal(t, strings.Index(all, mark) == len(all)-len(mark), re.MatchString(all), "%q", all)
	}
}

// Messages reach templates as they expect them.
func TestPlainMessages(t *testing.T) {
	text, err := plainMessages(json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"a<b"},{"type":"text","text":"c"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}}]}]`))
	require.NoError(t, err)
	require.JSONEq(t, `[{"role":"user","content":"a<b\nc"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"x": 1}}}]}]`, string(text))
	for _, bad := range []string{`{}`, `[1]`, `[null]`, `[{"tool_calls": 1}]`, `[{"tool_calls": [{}]}]`, `[{"tool_calls": [{"function": {"arguments": "{"}}]}]`} {
		_, err := plainMessages(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}

// The log-probabilities of a row are those of its softmax, the likeliest first.
func TestLogOf(t *testing.T) {
	l := logOf(2, []float32{1, 3, 2, 3, -50}, 3)
	require.Equal(t, []int32{1, 3, 2}, []int32{l.top[0].id, l.top[1].id, l.top[2].id})
	require.InDelta(t, l.top[2].log, l.log, 1e-12)
	require.Empty(t, logOf(0, []float32{1, 2}, 0).top)
	require.Len(t, logOf(0, []float32{1, 2}, 5).top, 2)
}
