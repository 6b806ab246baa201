package experiments

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
)

// With chat a prompt is what the model's chat template makes of it.
func TestLoadPromptsChat(t *testing.T) {
	e, err := registry.Open("../engine/checkpoint/testdata/llama.gguf")
	require.NoError(t, err)
	defer e.Close()
	file := filepath.Join(t.TempDir(), "p.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(`{"prompt": "the end"}`), 0o644))
	plain, err := LoadPrompts(Prompts{File: file}, e)
	require.NoError(t, err)
	chat, err := LoadPrompts(Prompts{File: file, Chat: true}, e)
	require.NoError(t, err)
	// Its template is the begin of text and the first content.
	require.Equal(t, e.Tokenizer.Encode("<|im_start|>the end", false), chat[0].IDs)
	require.Equal(t, plain[0].IDs, chat[0].IDs, "the begin of text, which the tokenizer adds by itself, is there once")
	plainModel, err := registry.Open(registry.Embedded)
	require.NoError(t, err)
	defer plainModel.Close()
	_, err = LoadPrompts(Prompts{Chat: true}, plainModel)
	require.ErrorContains(t, err, "prompts.chat: model embedded: the model has no chat template")
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

func TestPromptSets(t *testing.T) {
	e, err := registry.Open("embedded")
	require.NoError(t, err)
	defer e.Close()
	got, err := LoadPrompts(Prompts{Sets: []Prompts{
		{Classes: []string{"code"}, Limit: 2}, {Kind: "repetitive", Limit: 3, MaxTokens: 60}, {Kind: "random", Limit: 2, MaxTokens: 7},
	}}, e)
	require.NoError(t, err)
	var ids, classes []string
	for _, p := range got {
		ids, classes = append(ids, p.ID), append(classes, p.Class)
	}
	require.Equal(t, []string{"code", "code", "repetitive", "repetitive", "repetitive", "random", "random"}, classes)
	require.Equal(t, "repetitive-"+ids[0], ids[2])
	require.Len(t, got[2].IDs, 60)
	require.Equal(t, got[0].IDs[len(got[0].IDs)-repeated:], got[2].IDs[:repeated])
	require.Equal(t, got[2].IDs[:60-repeated], got[2].IDs[repeated:])
	require.Len(t, got[5].IDs, 7)
	require.NotEqual(t, got[5].IDs, got[6].IDs)

	_, err = LoadPrompts(Prompts{Sets: []Prompts{{Limit: 1}, {Limit: 1}}}, e)
	require.ErrorContains(t, err, "prompts.sets[1]: prompt ")
	for want, p := range map[string]Prompts{
		"prompts.sets: are there beside": {Limit: 1, Sets: []Prompts{{}}},
		"prompts.sets[0].sets: are":      {Sets: []Prompts{{Sets: []Prompts{{}}}}},
		"prompts.sets[1].limit: -1":      {Sets: []Prompts{{}, {Limit: -1}}},
		"prompts.kind: \"odd\"":          {Kind: "odd"},
		"prompts.kind: random prompts":   {Kind: "random", File: "x"},
	} {
		require.ErrorContains(t, p.validate("prompts"), want)
	}
}
