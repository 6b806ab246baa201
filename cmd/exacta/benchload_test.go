package main

import (
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
