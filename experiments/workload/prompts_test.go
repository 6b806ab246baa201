package workload

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
)

// Each format reads a line as the set that it is named for has them.
func TestFormats(t *testing.T) {
	for format, c := range map[string]struct {
		line string
		want registry.Prompt
	}{
		"spec-bench": {`{"question_id": 81, "category": "qa", "turns": ["a", "b"], "reference": ["c"]}`, registry.Prompt{ID: "81", Class: "qa", Text: "a"}},
		"mt-bench":   {`{"question_id": 82, "category": "writing", "turns": ["a", "b"]}`, registry.Prompt{ID: "82", Class: "writing", Text: "a"}},
		"humaneval":  {`{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "", "test": ""}`, registry.Prompt{ID: "HumanEval/0", Text: "def f():\n"}},
		"gsm8k":      {`{"question": "How many?", "answer": "#### 3"}`, registry.Prompt{ID: "line-1", Text: "How many?"}},
		"dolly":      {`{"instruction": "Say it", "context": "", "response": "x", "category": "open_qa"}`, registry.Prompt{ID: "line-1", Class: "open_qa", Text: "Say it"}},
		"longbench":  {`{"input": "Who?", "context": "Long ago.", "answers": ["x"], "length": 2, "dataset": "narrativeqa", "_id": "7f"}`, registry.Prompt{ID: "7f", Class: "narrativeqa", Text: "Long ago.\n\nWho?"}},
		"math":       {`{"problem": "$1+{x}$", "solution": "", "answer": "", "subject": "Algebra", "level": 2, "unique_id": "t/1.json"}`, registry.Prompt{ID: "t/1.json", Class: "Algebra", Text: "$1+{x}$"}},
		"glaive":     {`{"system": "SYSTEM: you have {}", "chat": "USER: hi\n\n\nASSISTANT: ho <|endoftext|>\nUSER: so\nASSISTANT: x"}`, registry.Prompt{ID: "line-1", Text: "SYSTEM: you have {}\n\nUSER: hi\n\n\nASSISTANT:"}},
		"sharegpt":   {`{"id": "i1", "conversations": [{"from": "human", "value": "hello"}]}`, registry.Prompt{ID: "i1", Text: "hello"}},
		"bfcl":       {`{"id": "simple_0", "question": [[{"role": "user", "content": "area?"}]], "function": []}`, registry.Prompt{ID: "simple_0", Text: "area?"}},
		"exacta":     {`{"id": "a", "class": "code", "prompt": "func"}`, registry.Prompt{ID: "a", Class: "code", Text: "func"}},
	} {
		got, err := ParsePrompts("f", []byte(c.line), Formats[format])
		require.NoError(t, err, format)
		require.Equal(t, []registry.Prompt{c.want}, got, format)
	}
	require.Len(t, Formats, 11, "a format has no line here")
	for line, want := range map[string]string{
		`{"chat": "USER: a"}`:                  `f:1: ["system"] is not there`,
		`{"system": "s", "chat": "USER: a"}`:   `f:1: the prompt has no "ASSISTANT:"`,
		`{"system": ["s"], "chat": "USER: a"}`: `f:1: "system" is neither a text nor a number`,
		`{"system": "s"} {"system": "t"}`:      `f:1: more than one JSON value`,
	} {
		_, err := ParsePrompts("f", []byte(line), Formats["glaive"])
		require.ErrorContains(t, err, want)
	}
	_, err := ParsePrompts("f", []byte(`{"a": "b"}`), Mapping{Prompt: "{a"})
	require.ErrorContains(t, err, `mapping "{a" has a brace that is not closed`)
}

// The published sets, where they are at hand.
func TestPublishedSets(t *testing.T) {
	for file, c := range map[string]struct {
		format string
		rows   int
	}{"spec_bench.jsonl": {"spec-bench", 480}, "mt_bench.jsonl": {"mt-bench", 80}, "eagle_humaneval.jsonl": {"spec-bench", 80}} {
		s := Prompts{File: shared(t, file), Format: c.format, Output: 8, Shuffle: true}
		require.NoError(t, s.Validate())
		got, err := s.Load(Env{Seed: 1, Encode: func(text string, _ bool) ([]int32, error) { return make([]int32, len(text)), nil }})
		require.NoError(t, err)
		require.Len(t, got, c.rows)
	}
}

func TestParsePrompts(t *testing.T) {
	got, err := ParsePrompts("p.jsonl", []byte(`{"id": "a", "class": "code", "prompt": "func"}

{"question_id": 81, "category": "writing", "turns": ["first", "second"]}
{"prompt": "x", "extra": true}`), Formats["exacta"])
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
		`{"text": "a"}`:                  `p.jsonl:1: ["prompt" "turns.0"] is not there`,
		`{"turns": []}`:                  `p.jsonl:1: ["prompt" "turns.0"] is not there`,
		`{"prompt": ""}`:                 "p.jsonl:1: the prompt is empty",
		`{"turns": ["", "b"]}`:           "p.jsonl:1: the prompt is empty",
		"{\"prompt\": \"a\"}\n{\"prompt\": \"a\xff\"}":                       "p.jsonl:2: not valid UTF-8",
		`{"id": "a", "prompt": "x"}` + "\n\n" + `{"id": "a", "prompt": "y"}`: `p.jsonl:3: id "a" is that of line 1; each prompt needs its own`,
	} {
		_, err := ParsePrompts("p.jsonl", []byte(text), Formats["exacta"])
		require.ErrorContains(t, err, want, text)
		require.True(t, strings.HasPrefix(err.Error(), want), "%v", err)
	}
}

func FuzzParsePrompts(f *testing.F) {
	f.Add([]byte(`{"id": "a", "class": "code", "prompt": "func"}`), byte(2))
	f.Add([]byte("{\"question_id\": 81, \"category\": \"w\", \"turns\": [\"a\", \"b\"]}\r\n{\"prompt\": \"\\ud800\"}"), byte(2))
	f.Add([]byte(`{"question_id": [1, {}], "prompt": "x"}`+"\n"+`{"id": "line-3", "prompt": "x"}`+"\n"+`{"prompt": "x"}`), byte(2))
	f.Add([]byte(`{"system": "", "chat": "USER: a ASSISTANT: b"}`), byte(5))
	f.Add([]byte(`{"question": [[{"role": "user", "content": "a"}]]}`), byte(0))
	f.Fuzz(func(t *testing.T, text []byte, format byte) {
		prompts, err := ParsePrompts("p.jsonl", text, Formats[formats()[int(format)%len(Formats)]])
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
