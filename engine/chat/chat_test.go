package chat

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/chat/jinja"
)

func files(pairs ...string) Files {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func hello(t *testing.T, s *Set, name string, tools bool) string {
	t.Helper()
	tmpl, err := s.Pick(name, tools)
	require.NoError(t, err)
	out, err := tmpl.Render(NewMessages(Message{"user", "hi"}), Options{})
	require.NoError(t, err)
	return out
}

func TestLoadFindsTemplates(t *testing.T) {
	config := `{"chat_template": "config {{ bos_token }}{{ messages[0].content }}{{ pad_token }}", "bos_token": "<s>",
		"pad_token": {"content": "<p>", "lstrip": false}, "add_bos_token": true, "unk_token": null}`
	s, err := Load(files("tokenizer_config.json", config))
	require.NoError(t, err)
	require.Equal(t, "config <s>hi<p>", hello(t, s, "", true))

	s, err = Load(files("tokenizer_config.json", config, "chat_template.jinja", "file {{ bos_token }}{{ unk_token is defined }}"))
	require.NoError(t, err)
	require.Equal(t, "file <s>False", hello(t, s, "", true), "the file goes before the key")

	s, err = Load(files("tokenizer_config.json", `{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}]}`))
	require.NoError(t, err)
	require.Equal(t, []string{"default", "rag", "tool_use"}, s.Names())
	require.Equal(t, "d", hello(t, s, "", false))
	require.Equal(t, "t", hello(t, s, "", true))
	require.Equal(t, "r", hello(t, s, "rag", true))
	_, err = s.Pick("other", false)
	require.EqualError(t, err, `there is no chat template "other"; the model has default, rag, tool_use`)

	s, err = Load(files("chat_template.jinja", "d", "additional_chat_templates/rag.jinja", "r", "additional_chat_templates/notes.txt", "{{"))
	require.NoError(t, err)
	require.Equal(t, []string{"default", "rag"}, s.Names())
}

func TestLoadRefuses(t *testing.T) {
	for want, fsys := range map[string]Files{
		"the model has no chat template":                                                                   files("tokenizer_config.json", `{"bos_token": "<s>"}`),
		"tokenizer_config.json: unexpected end of JSON input":                                              files("tokenizer_config.json", `{`),
		"tokenizer_config.json: chat_template[0] must have a name and a template":                          files("tokenizer_config.json", `{"chat_template": [{"template": "x"}]}`),
		"tokenizer_config.json: chat_template must be a text, or a list of objects with name and template": files("tokenizer_config.json", `{"chat_template": 5}`),
		"chat template default: line 1: a {{ has no }}":                                                    files("chat_template.jinja", `{{`),
	} {
		_, err := Load(fsys)
		require.EqualError(t, err, want)
	}
	_, err := Load(files())
	require.ErrorIs(t, err, ErrNone)
	_, err = Load(files("tokenizer_config.json", `{"chat_template": `+strings.Repeat("[", 1<<20)))
	require.ErrorContains(t, err, "tokenizer_config.json")
}

func TestParseMessages(t *testing.T) {
	m, err := ParseMessages([]byte(`[{"role": "user", "content": "x", "n": 1.0, "z": 1, "a": 2}]`))
	require.NoError(t, err)
	require.Equal(t, 1, m.Len())
	tmpl, err := Parse("t", "{{ messages|tojson }}", nil)
	require.NoError(t, err)
	out, err := tmpl.Render(m, Options{})
	require.NoError(t, err)
	require.Equal(t, `[{"role": "user", "content": "x", "n": 1.0, "z": 1, "a": 2}]`, out, "keys keep their order, numbers their kind")
	for text, want := range map[string]string{
		`[]`:                       "messages: the list is empty",
		`{}`:                       "messages: it must be a list of objects",
		`[1]`:                      "messages[0]: it must be an object",
		`[{"content": "x"}]`:       "messages[0]: role is missing, or no text",
		`[{"role": 5}]`:            "messages[0]: role is missing, or no text",
		`[`:                        "messages: unexpected EOF",
		`[] []`:                    "messages: text follows the JSON value",
		"[\"\xff\"]":               "messages: the JSON is not valid UTF-8",
		strings.Repeat(`[`, 1<<20): "messages: the JSON is nested deeper than 200",
	} {
		_, err := ParseMessages([]byte(text))
		require.EqualError(t, err, want)
	}
}

func TestContinue(t *testing.T) {
	m := NewMessages(Message{"user", "Count."}, Message{"assistant", "one, two"})
	for source, want := range map[string]string{
		"{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}":      "<user>Count.<end><assistant>one, two",
		"{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}<end>{% endfor %}": "<user>Count.<end><assistant>one, two",
	} {
		tmpl, err := Parse("t", source, nil)
		require.NoError(t, err)
		out, err := tmpl.Render(m, Options{Continue: true})
		require.NoError(t, err)
		require.Equal(t, want, out)
		again, err := tmpl.Render(m, Options{})
		require.NoError(t, err)
		require.Equal(t, want+"<end>", again, "the messages are as they were")
	}
	tmpl, err := Parse("t", "nothing", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(m, Options{Continue: true})
	require.EqualError(t, err, "chat template t: the last message can't be continued: it does not appear in the prompt as it is")
	_, err = tmpl.Render(Messages{}, Options{Continue: true})
	require.EqualError(t, err, "there is no last message to continue")
}

func TestRenderErrors(t *testing.T) {
	tmpl, err := Parse("t", "\n{{ raise_exception('roles must alternate') }}", nil)
	require.NoError(t, err)
	_, err = tmpl.Render(NewMessages(Message{"user", "x"}), Options{})
	require.ErrorIs(t, err, ErrTemplate)
	require.EqualError(t, err, "the chat template refuses the messages: template t: line 2: roles must alternate")

	tmpl, err = Parse("t", "{% for m in messages %}{% endfor %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", nil)
	require.NoError(t, err)
	start := time.Now()
	_, err = tmpl.Render(Messages{}, Options{})
	require.ErrorIs(t, err, jinja.ErrLimit)
	require.False(t, errors.Is(err, ErrTemplate))
	if !testing.Short() { // not under the race detector
		require.Less(t, time.Since(start), 20*time.Second)
	}

	var v Variables
	require.EqualError(t, v.Set("messages", []byte("[]")), `variable "messages": this name can't be set`)
	require.ErrorContains(t, v.Set("x", []byte("yes")), "variable x: ")
}

// BenchmarkRender is a conversation of 40 messages with tools by the template
// of Qwen3.
func BenchmarkRender(b *testing.B) {
	source, err := os.ReadFile("testdata/templates/qwen3.jinja")
	require.NoError(b, err)
	tmpl, err := Parse("qwen3", string(source), nil)
	require.NoError(b, err)
	var list []Message
	for range 20 {
		list = append(list, Message{"user", strings.Repeat("words ", 50)}, Message{"assistant", strings.Repeat("more words ", 50)})
	}
	m := NewMessages(list...)
	for b.Loop() {
		_, err := tmpl.Render(m, Options{AddGenerationPrompt: true})
		require.NoError(b, err)
	}
}
