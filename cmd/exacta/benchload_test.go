package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchLoad(t *testing.T) {
	v := object(t, "bench", "load", "--model", toy, "--rounds", "1", "--threads", "1")
	require.Equal(t, []string{
		"bytes", "copy_bytes_per_s", "kernels", "load_bytes_per_s", "model", "peak_ratio", "peak_resident_bytes", "ratio_to_copy", "rounds", "threads", "weights_bytes",
	}, keys(v))
	require.Positive(t, v["ratio_to_copy"])
}

// A checkpoint of one's own, since no other process may have it mapped.
func TestBenchLoadCold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(dir, os.DirFS(toy)))
	code, out, errOut := exacta(t, "bench", "load", "--model", dir, "--rounds", "1", "--threads", "1", "--cold", "--json")
	if code != exitFine && strings.Contains(errOut, "from the page cache") {
		t.Skip("this system keeps its files in memory: " + errOut)
	}
	require.Equal(t, exitFine, code, errOut)
	v := decode(t, out)
	require.Positive(t, v["disk_bytes_per_s"])
	require.Positive(t, v["cold_bytes_per_s"])
	require.Positive(t, v["ratio_to_disk"])
}
