package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is wrong with the use of hidden is named; what is written is said. The rows
// are tested in experiments (TestHiddenIsTheForward and others).
func TestHidden(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "states")
	text := fine(t, "hidden", "--text", write(t, "func main() {\n\tx := 1\n}\n"), "--length", "3", "--new", "2", "--ignore-eos", "--limit", "2", "--out", dir)
	require.Contains(t, text, "2 sequences, 10 tokens (4 the model's own)")
	require.FileExists(t, filepath.Join(dir, "hidden-00001.safetensors"))
	bad(t, []string{"hidden", "--out", dir}, "holds an export already")
	bad(t, []string{"hidden"}, `"out" not set`)
	other := filepath.Join(t.TempDir(), "other")
	bad(t, []string{"hidden", "--out", other, "--ids", "a", "--text", "b"}, "[ids text] were all set")
	bad(t, []string{"hidden", "--out", other, "--taps", "x"}, "taps")
	bad(t, []string{"hidden", "--out", other, "--taps", "99", "--limit", "1"}, "after layer 99; the model has 20 layers")
	bad(t, []string{"hidden", "--out", other, "--ids", write(t, "[1,-1]")}, "id -1 at position 1 is outside the vocabulary")
	bad(t, []string{"hidden", "--out", filepath.Join(write(t, "x"), "y")}, "not a directory")
	bad(t, []string{"hidden", "--out", other, "--shard-mib", "0"}, "shards of 0 bytes")
}
