package main

import (
	"os"
	"path/filepath"
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
	require.Contains(t, errs, "it is for cpu")
}
