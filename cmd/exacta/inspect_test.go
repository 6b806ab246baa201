package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInspectJSON(t *testing.T) {
	v := object(t, "inspect", "embedded")
	require.Equal(t, []string{
		"architecture", "config", "drafts", "files", "format", "hash", "left_out", "memory", "missing", "model", "model_type",
		"parameters", "parts", "problems", "runs", "stored_bytes", "tokenizer", "types", "unread", "unused",
	}, keys(v))
	require.Equal(t, true, v["runs"])
	require.Equal(t, []any{"mtp", "eagle3", "medusa", "dflash", "dspark"}, v["drafts"])
	require.Equal(t, []any{}, v["unused"], "every tensor of the model has a use")
	require.Equal(t, []string{"activations", "context", "draft", "kv", "left_in_files", "sequences", "state", "tables", "total", "weights"}, keys(v["memory"].(map[string]any)))
	require.Equal(t, []string{"before", "chat_template", "eos", "special", "tokens"}, keys(v["tokenizer"].(map[string]any)))

	v = object(t, "inspect", "../../engine/checkpoint/testdata/llama.gguf", "--sequences", "2")
	require.Equal(t, "gguf", v["format"])
	require.Equal(t, true, v["tokenizer"].(map[string]any)["chat_template"])
	require.Equal(t, 2.0, v["memory"].(map[string]any)["sequences"])
}

func TestInspectText(t *testing.T) {
	out := fine(t, "inspect", toy)
	require.Contains(t, out, "architecture  qwen3, Qwen3ForCausalLM\n")
	require.Contains(t, out, "runs          yes\n")
	require.Contains(t, fine(t, "inspect", "../../engine/model/testdata/qwen3_5_moe"), "of width 48, 3 of 11 experts of 22, 4 heads of 40")
	out = fine(t, "inspect", "random:qwen3.8-flash-next")
	require.Contains(t, out, "and 102.4 GB of n-gram tables, which stay in their files: rows are read as they are looked up\n")
	require.Contains(t, out, "runs          yes\n")
	code, out, _ := exacta(t, "inspect", damaged(t, "config.json", func([]byte) []byte { return []byte(`{"model_type":"x"}`) }))
	require.Equal(t, exitFalse, code)
	require.Contains(t, out, `model_type is "x"`)
	require.Contains(t, out, "runs          no\n")
	code, _, errs := exacta(t, "inspect", "no/such/model")
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "no such file or directory")
}
