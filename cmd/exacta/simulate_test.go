package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var claims = regexp.MustCompile(`(?i)\b(exact|lossless)\b`)

// Simulated output says so wherever it is read, and nothing claims that it is
// plain decoding's.
func TestSimulatedOutputs(t *testing.T) {
	config := write(t, strings.Replace(tiny, "- {drafter: mtp, k: [2]}", "- {drafter: mtp, k: [2], simulate: {length: 2.6}}", 1))
	dir := filepath.Join(t.TempDir(), "run")
	table := fine(t, "run", config, "--dir", dir)
	require.NotRegexp(t, claims, table)
	require.Contains(t, table, "mtp (simulated)")
	stats := fine(t, "stats", dir)
	require.NotRegexp(t, claims, stats)
	require.Contains(t, stats, "simulated")

	audit := fine(t, "audit", dir)
	require.NotRegexp(t, claims, audit)
	require.Contains(t, audit, "simulated")

	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	for _, v := range []map[string]any{
		decode(t, string(text)),
		object(t, "run", filepath.Join(dir, "config.yaml"), "--dir", filepath.Join(t.TempDir(), "again")),
	} {
		require.Equal(t, true, v["simulated"])
		runs := v["runs"].([]any)
		for i, r := range runs {
			r := r.(map[string]any)
			require.Nil(t, r["exact"])
			require.Equal(t, i == 2, r["simulated"])
		}
		mtp := runs[2].(map[string]any)
		require.Equal(t, "length=2.6", mtp["simulation"])
		require.Positive(t, mtp["real_accept_length"])
	}
	points := object(t, "stats", dir)["points"].([]any)
	require.Equal(t, true, points[len(points)-1].(map[string]any)["simulated"])
	for _, name := range []string{"outputs.jsonl", "prompts.jsonl", "config.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NotRegexp(t, claims, string(text), name)
	}
}

func TestGenerateSimulated(t *testing.T) {
	args := []string{"generate", "--max-tokens", "40", "--k", "3", prompt}
	plain := object(t, append(args, "--draft", "none")...)
	for _, draft := range []string{"mtp", "ngram"} {
		v := object(t, append(args, "--draft", draft, "--simulate", "length=1")...)
		require.Equal(t, plain["text"], v["text"], draft)
		require.Equal(t, 1.0, v["accept_length"])
		require.Equal(t, true, v["simulated"])
		require.Equal(t, "length=1", v["simulation"])
		require.Greater(t, v["real_accept_length"], 1.0)
		for _, token := range v["tokens"].([]any) {
			require.Equal(t, true, token.(map[string]any)["simulated"])
		}
	}
	v := object(t, append(args, "--draft", "mtp", "--simulate", "length=2.6")...)
	require.InDelta(t, 2.6, v["accept_length"], 0.5)
	code, out, errs := exacta(t, append(args, "--simulate", "rates=1,0.6")...)
	require.Equal(t, exitFine, code)
	require.NotRegexp(t, claims, out+errs)
	require.Contains(t, errs, "; simulated rates=1,0.6, real accept length ")
}
