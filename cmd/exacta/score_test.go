package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
)

const scored = "func main() {\n"

// The float64 oracle and the CPU backend agree on what the embedded model makes
// of a text; all logits can be had as a file.
func TestScore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "logits.safetensors")
	args := []string{"score", "--text", scored, "--continue", "3", "--logits", file}
	cpu := object(t, args...)
	require.Equal(t, []string{"backend", "continuation", "model", "positions"}, keys(cpu))
	positions := cpu["positions"].([]any)
	require.NotEmpty(t, positions)
	ref := object(t, "score", "--text", scored, "--continue", "3", "--backend", "ref")
	require.Equal(t, "cpu", cpu["backend"])
	require.Equal(t, "ref", ref["backend"])

	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	tensors, err := checkpoint.ReadSafetensors(raw)
	require.NoError(t, err)
	require.Len(t, tensors, 1)
	logits := tensors[0]
	require.Equal(t, "logits", logits.Name)
	require.Equal(t, checkpoint.F32, logits.DType)
	require.Len(t, logits.Shape, 2)
	require.Equal(t, len(positions), logits.Shape[0])
	vocab := logits.Shape[1]

	for i, p := range positions {
		p, q := p.(map[string]any), ref["positions"].([]any)[i].(map[string]any)
		require.Equal(t, []string{"id", "logprob", "top"}, keys(p))
		require.Equal(t, q["id"], p["id"])
		top := p["top"].([]any)
		require.Len(t, top, 5)
		last := math.Inf(1)
		for _, e := range top {
			e := e.(map[string]any)
			require.Equal(t, []string{"id", "logit"}, keys(e))
			logit := e["logit"].(float64)
			require.LessOrEqual(t, logit, last)
			last = logit
			var stored [4]byte
			_, err := logits.ReadAt(stored[:], 4*int64(i*vocab+int(e["id"].(float64))))
			require.NoError(t, err)
			require.InDelta(t, math.Float32frombits(binary.LittleEndian.Uint32(stored[:])), logit, 1e-5)
		}
		if i == 0 {
			require.Nil(t, p["logprob"])
			continue
		}
		require.Less(t, p["logprob"], 0.0)
		require.InDelta(t, q["logprob"], p["logprob"], 0.05, "position %d", i)
	}
	require.Len(t, cpu["continuation"], 3)
	for _, c := range cpu["continuation"].([]any) {
		require.Equal(t, []string{"gap", "id"}, keys(c))
		require.GreaterOrEqual(t, c.(map[string]any)["gap"], 0.0)
	}
	require.Contains(t, fine(t, args...), "logprob")
}

// Ids from a list and from a file are the same thing, and what text is encoded to.
func TestScoreIDs(t *testing.T) {
	name := write(t, "[13, 87, 198]")
	want := object(t, "score", "--ids", "13, 87,198")
	require.Equal(t, want, object(t, "score", "--ids-file", name))
	require.Len(t, want["positions"], 3)
	require.Empty(t, want["continuation"])
	for text, want := range map[string]string{
		"[]":         "no token ids",
		"[1.5]":      "want an array of integers",
		`["a"]`:      "want an array of integers",
		"[1":         "want an array of integers",
		"[1, 99999]": "id 99999 at position 1 is outside the vocabulary 0..",
		"[null]":     "want an array of integers",
	} {
		bad(t, []string{"score", "--ids-file", write(t, text)}, want)
	}
	full := filepath.Join(t.TempDir(), "full")
	if os.Symlink("/dev/full", full) == nil {
		bad(t, []string{"score", "--ids", "1", "--logits", full}, "--logits "+full)
	}
	bad(t, []string{"score", "--text", "\xff"}, "UTF-8")
	bad(t, []string{"score", "--ids", "1", "--text", "x"}, "[ids text] were all set")
	bad(t, []string{"score", "--ids", "1", "--continue", "1000000"}, "tokens are more than the context of")
}
