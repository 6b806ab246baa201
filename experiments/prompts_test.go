package experiments

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
)

func TestParsePrompts(t *testing.T) {
	got, err := parsePrompts("p.jsonl", []byte(`{"id": "a", "class": "code", "prompt": "func"}

{"question_id": 81, "category": "writing", "turns": ["first", "second"]}
{"prompt": "x", "extra": true}`))
	require.NoError(t, err)
	require.Equal(t, []registry.Prompt{
		{ID: "a", Class: "code", Text: "func"}, {ID: "81", Class: "writing", Text: "first"}, {ID: "line-4", Text: "x"},
	}, got)
	for text, want := range map[string]string{
		"":                               "p.jsonl: no prompts",
		"\n \n":                          "p.jsonl: no prompts",
		`{"prompt": "a"}` + "\nnonsense": "p.jsonl:2: ",
		`{"prompt": 3}`:                  "p.jsonl:1: ",
		`["a"]`:                          "p.jsonl:1: ",
		`{"text": "a"}`:                  `p.jsonl:1: neither "prompt" nor "turns" is there`,
		`{"turns": []}`:                  `p.jsonl:1: neither "prompt" nor "turns" is there`,
		`{"prompt": ""}`:                 "p.jsonl:1: the prompt is empty",
		`{"turns": ["", "b"]}`:           "p.jsonl:1: the prompt is empty",
		"{\"prompt\": \"a\"}\n{\"prompt\": \"a\xff\"}":                       "p.jsonl:2: not valid UTF-8",
		`{"id": "a", "prompt": "x"}` + "\n\n" + `{"id": "a", "prompt": "y"}`: `p.jsonl:3: id "a" is that of line 1; each prompt needs its own`,
	} {
		_, err := parsePrompts("p.jsonl", []byte(text))
		require.ErrorContains(t, err, want, text)
		require.True(t, strings.HasPrefix(err.Error(), want), "%v", err)
	}
}

func FuzzParsePrompts(f *testing.F) {
	f.Add([]byte(`{"id": "a", "class": "code", "prompt": "func"}`))
	f.Add([]byte("{\"question_id\": 81, \"category\": \"w\", \"turns\": [\"a\", \"b\"]}\r\n{\"prompt\": \"\\ud800\"}"))
	f.Add([]byte(`{"question_id": [1, {}], "prompt": "x"}` + "\n" + `{"id": "line-3", "prompt": "x"}` + "\n" + `{"prompt": "x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		prompts, err := parsePrompts("p.jsonl", text)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "p.jsonl:"), err)
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.NotEmpty(t, prompts)
		ids := map[string]bool{}
		for _, p := range prompts {
			require.NotEmpty(t, p.ID)
			require.NotEmpty(t, p.Text)
			require.True(t, utf8.ValidString(p.Text))
			require.False(t, ids[p.ID], "id %q twice", p.ID)
			ids[p.ID] = true
		}
	})
}

func TestLoadPrompts(t *testing.T) {
	e, err := registry.Open(registry.Embedded)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	got, err := LoadPrompts(Prompts{Limit: 3, MaxTokens: 5}, e)
	require.NoError(t, err)
	require.Len(t, got, 3)
	all, err := LoadPrompts(Prompts{Limit: 3}, e)
	require.NoError(t, err)
	for i, p := range got {
		ids := all[i].IDs
		require.Equal(t, ids[len(ids)-5:], p.IDs)
	}
	_, err = LoadPrompts(Prompts{Classes: []string{"poetry"}}, e)
	require.ErrorContains(t, err, "classes [poetry]")
	_, err = LoadPrompts(Prompts{File: "/no/such.jsonl"}, e)
	require.ErrorContains(t, err, "prompts.file: open /no/such.jsonl")
}
