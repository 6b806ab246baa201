package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// smollm2 is the file that tools/smollm2.sh fetches.
func smollm2(t *testing.T) string {
	t.Helper()
	path := os.Getenv("EXACTA_SMOLLM2")
	if path == "" {
		t.Skip("EXACTA_SMOLLM2 is not set: EXACTA_SMOLLM2=$(tools/smollm2.sh DIR) fetches SmolLM2-135M-Instruct and names it")
	}
	return path
}

// A published model runs from its GGUF file: it knows what small models know.
func TestSmolLM2Answers(t *testing.T) {
	path := smollm2(t)
	for _, c := range []struct{ prompt, want string }{
		{"The capital of France is", "Paris"},
		{"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", "Paris"},
		{"<|im_start|>user\nWho wrote Romeo and Juliet?<|im_end|>\n<|im_start|>assistant\n", "Shakespeare"},
	} {
		v := object(t, "generate", "--model", path, "--draft", "none", "--max-tokens", "16", c.prompt)
		require.Contains(t, v["text"], c.want, c.prompt)
	}
}

// Its chat template, which is in the file, makes the prompts that it was trained
// on; strategies change nothing.
func TestSmolLM2Chat(t *testing.T) {
	args := []string{"generate", "--model", smollm2(t), "--max-tokens", "24", "--chat", "What is the capital of France?"}
	v := object(t, append(args, "--draft", "none")...)
	require.Equal(t, "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"+
		"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", v["prompt"])
	require.Equal(t, "The capital of France is Paris.", v["text"])
	require.Equal(t, "stop", v["finish"])
	require.Equal(t, v["text"], object(t, append(args, "--draft", "ngram")...)["text"])
}

// Its output with strategies is that of plain decoding, logits included.
func TestSmolLM2Exact(t *testing.T) {
	dir := t.TempDir()
	prompts := filepath.Join(dir, "prompts.jsonl")
	require.NoError(t, os.WriteFile(prompts, []byte(`{"id":"list","prompt":"<|im_start|>user\nList the planets, one a line, each with its distance.<|im_end|>\n<|im_start|>assistant\n"}
{"id":"code","prompt":"def add(a, b):\n    return a + b\n\ndef sub(a, b):\n"}
{"id":"text","prompt":"Once upon a time there was a small town. In the town"}
`), 0o644))
	config := filepath.Join(dir, "smollm2.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `name: smollm2
model: %s
prompts: {file: %s}
max_new: 40
strategies:
  - {drafter: ngram, k: [4]}
  - {drafter: suffix, k: [4]}
  - {drafter: layerskip, k: [2], config: {layers: 24}}
  - {drafter: model, k: [3], config: {model: %s}}
concurrency: [3]
repeats: 1
`, smollm2(t), prompts, smollm2(t)), 0o644))
	v := object(t, "run", config, "--dir", filepath.Join(dir, "run"))
	runs := v["runs"].([]any)
	require.Len(t, runs, 5)
	for _, r := range runs {
		r := r.(map[string]any)
		require.Equal(t, true, r["exact"], r["drafter"])
		if r["drafter"] != "none" {
			require.Greater(t, r["accept_length"], 1.0)
		}
	}
}
