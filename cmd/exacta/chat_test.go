package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/embedded"
)

// chatModel is the embedded model as a folder with a chat template.
func chatModel(t *testing.T, template string) string {
	t.Helper()
	fsys, err := embedded.FS()
	if err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} {
		text, err := fs.ReadFile(fsys, name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	put(t, filepath.Join(dir, "chat_template.jinja"), template)
	return dir
}

func put(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const goTemplate = "{% for m in messages %}// {{ m.role }}: {{ m.content }}\n{% endfor %}{% if tools %}// {{ tools|tojson }}\n{% endif %}{% if pad is defined %}// {{ pad|tojson }}{{ eos_token }}\n{% endif %}{% if add_generation_prompt %}package main\n{% endif %}"

// The answer to messages is what follows the text that the template makes of
// them, whatever drafts it.
func TestGenerateChat(t *testing.T) {
	dir := chatModel(t, goTemplate)
	args := []string{"generate", "--model", dir, "--max-tokens", "12"}
	chat := append(args, "--chat", "--system", "terse", "sort a list")
	v := object(t, chat...)
	require.Equal(t, "// system: terse\n// user: sort a list\npackage main\n", v["prompt"])
	plain := object(t, append(args, v["prompt"].(string))...)
	require.Equal(t, plain["text"], v["text"])
	require.Equal(t, plain["prompt_tokens"], v["prompt_tokens"])
	require.NotContains(t, plain, "prompt")
	require.Equal(t, v["text"].(string)+"\n", fine(t, chat...), "the answer alone is printed")
	require.Equal(t, v["text"].(string)+"\n", fine(t, append(chat, "--draft", "none")...))

	messages := put(t, filepath.Join(dir, "talk.json"), `[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]`)
	tools := put(t, filepath.Join(dir, "tools.json"), `[{"z": 1, "a": 1.0}]`)
	v = object(t, append(args, "--messages", messages, "--tools", tools, "--template-var", `pad={"k": [1, "<"]}`)...)
	require.Equal(t, "// user: a\n// assistant: b\n// user: c\n// [{\"z\": 1, \"a\": 1.0}]\n// {\"k\": [1, \"<\"]}<|endoftext|>\npackage main\n", v["prompt"])

	other := put(t, filepath.Join(dir, "other.jinja"), "{{ messages[0].content }}{{ eos_token }}")
	v = object(t, append(args, "--chat", "--chat-template", other, "hi")...)
	require.Equal(t, "hi<|endoftext|>", v["prompt"])
}

func TestGenerateChatRefuses(t *testing.T) {
	dir := chatModel(t, "{{ raise_exception('no ' ~ messages[0].role) }}")
	loops := put(t, filepath.Join(dir, "loops.jinja"), "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}")
	list := put(t, filepath.Join(dir, "list.json"), `[{"content": "x"}]`)
	for want, args := range map[string][]string{
		"the chat template refuses the messages: template default: line 1: no user":              {"--model", dir, "--chat", "hi"},
		"it does more than a template may: more steps than the limit":                            {"--model", dir, "--chat", "--chat-template", loops, "hi"},
		`there is no chat template "rag"; the model has default`:                                 {"--model", dir, "--chat", "--chat-template", "rag", "hi"},
		"the model has no chat template; give one by --chat-template FILE.jinja":                 {"--chat", "hi"},
		"model random:embedded has no tokenizer":                                                 {"--model", "random:embedded", "--chat", "hi"},
		"list.json: messages[0]: role is missing, or no text":                                    {"--model", dir, "--messages", list},
		"--system without --chat or --messages":                                                  {"--system", "x", "hi"},
		"a prompt and --messages: give one of them":                                              {"--messages", list, "hi"},
		"--system and --messages: put the system message into the file":                          {"--messages", list, "--system", "x"},
		`--template-var "x"; it must be NAME=JSON`:                                               {"--model", dir, "--chat", "--template-var", "x", "hi"},
		"--template-var x=yes: variable x: invalid character 'y' looking for beginning of value": {"--model", dir, "--chat", "--template-var", "x=yes", "hi"},
	} {
		code, _, errs := exacta(t, append([]string{"generate", "--max-tokens", "2"}, args...)...)
		require.Equal(t, exitBad, code, errs)
		require.Contains(t, errs, want)
	}
}
