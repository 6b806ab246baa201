package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A packed file is left by the first start and used by the next: the numbers are the
// same. It belongs to the files that it was made of.
func TestPackCache(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("EXACTA_CACHE", cache)
	dir := damaged(t, "config.json", func(text []byte) []byte { return text })
	args := []string{"score", "--model", dir, "--ids", "1,2,3,4", "--continue", "4"}
	want := fine(t, args...)
	args = append(args, "--pack-cache")
	for i := range 3 {
		code, out, errs := exacta(t, args...)
		require.Equal(t, exitFine, code, errs)
		require.Equal(t, want, out)
		require.Equal(t, i == 0, errs != "", errs)
	}
	files, err := filepath.Glob(cache + "/packed/*")
	require.NoError(t, err)
	require.Len(t, files, 1)

	require.NoError(t, os.WriteFile(files[0], []byte("no"), 0o644))
	code, _, errs := exacta(t, args...)
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "remove the file")

	weights := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.Chtimes(weights, time.Now().Add(time.Hour), time.Now().Add(time.Hour)))
	require.Equal(t, want, fine(t, args...), "other files have another packed one")
	code, _, errs = exacta(t, "score", "--model", "embedded", "--ids", "1,2", "--pack-cache")
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "models on disk")
	code, _, errs = exacta(t, append(args, "--backend", "ref")...)
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "kept by the backend cpu, not ref")
}

// A run does the same, by its file or the flag, and says so; the audit reads the
// model's own files.
func TestPackCacheOfARun(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("EXACTA_CACHE", cache)
	model := damaged(t, "config.json", func(text []byte) []byte { return text })
	config := filepath.Join(t.TempDir(), "run.yaml")
	text := "name: packed\nmodel: " + model + "\nmax_new: 8\nrepeats: 1\nprompts: {limit: 2}\nstrategies:\n  - {drafter: ngram, k: [2]}\n"
	run := func(dir, more string, args ...string) map[string]any {
		require.NoError(t, os.WriteFile(config, []byte(text+more), 0o644))
		return object(t, append([]string{"run", config, "--dir", dir}, args...)...)
	}
	provenance := func(v map[string]any) any { return v["provenance"].(map[string]any)["packed_weights"] }
	dir := t.TempDir()
	require.Nil(t, provenance(run(filepath.Join(dir, "0"), "")))
	v := run(filepath.Join(dir, "1"), "pack_cache: true\n")
	require.Equal(t, "written", provenance(v))
	require.Equal(t, []any{"packed weights are kept for the next start"}, v["warnings"])
	v = run(filepath.Join(dir, "2"), "", "--pack-cache")
	require.Equal(t, "mapped", provenance(v))
	require.Nil(t, v["warnings"])
	for _, r := range v["runs"].([]any) {
		require.Equal(t, true, r.(map[string]any)["exact"])
	}
	files, err := filepath.Glob(cache + "/packed/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, os.WriteFile(files[0], []byte("no"), 0o644))
	for _, name := range []string{"1", "2"} {
		_, out, _ := exacta(t, "audit", filepath.Join(dir, name))
		require.Contains(t, out, "tokens: pass")
		require.Contains(t, out, "counts: pass")
	}
	code, _, errs := exacta(t, "run", config, "--pack-cache", "--dir", filepath.Join(dir, "3"))
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "remove the file")
	require.NoError(t, os.WriteFile(config, []byte(text+"pack_cache: true\nbackend: ref\n"), 0o644))
	code, _, errs = exacta(t, "run", config)
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "pack_cache: is for backend cpu, not ref")
}

// So does a server: the second start maps the file and answers the same.
func TestPackCacheOfAServer(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("EXACTA_CACHE", cache)
	model, records := damaged(t, "config.json", func(text []byte) []byte { return text }), t.TempDir()
	config := filepath.Join(t.TempDir(), "serve.yaml")
	require.NoError(t, os.WriteFile(config, []byte("pack_cache: true\n"), 0o644))
	var answers []string
	for i, args := range [][]string{{}, {"--pack-cache"}, {"--config", config}} {
		url, log, stop := started(t, append([]string{"--model", model, "--context", "256", "--records", records}, args...)...)
		status, text := post(t, url+"/v1/completions", `{"prompt": [1, 2, 3], "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": true}`)
		require.Equal(t, 200, status, text)
		require.Equal(t, exitFine, stop(), log.String())
		require.Equal(t, i == 1, strings.Contains(log.String(), "packed weights are kept"), log.String())
		_, answer, _ := strings.Cut(text, `"choices":`)
		answer, _, _ = strings.Cut(answer, `"created"`)
		answers = append(answers, answer)
	}
	require.Contains(t, answers[0], "token_logprobs")
	require.Equal(t, []string{answers[0], answers[0]}, answers[1:])
	files, err := filepath.Glob(cache + "/packed/*")
	require.NoError(t, err)
	require.Len(t, files, 1)
	runs, err := filepath.Glob(filepath.Join(records, "serve-*", "summary.json"))
	require.NoError(t, err)
	require.Len(t, runs, 3)
	for i, want := range []string{"", `"written"`, `"mapped"`} {
		text, err := os.ReadFile(runs[i])
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
}
