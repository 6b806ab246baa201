package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFaultsCommand(t *testing.T) {
	got := object(t, "faults", "--only", "8b", "--seeds", "1", "--healthy", "1")
	help := fine(t, "faults", "--help")
	row := got["faults"].([]any)[0]
	for _, key := range append(keys(got), keys(row)...) {
		require.Regexp(t, `\b`+key+`\b`, help)
	}
	require.EqualValues(t, 1, got["healthy_runs"])
	require.EqualValues(t, 0, got["false_alarms"])
	require.Equal(t, "8b", row.(map[string]any)["id"])
	require.Contains(t, row.(map[string]any)["caught_by"], "counts")
	require.NotEmpty(t, row.(map[string]any)["evidence"])

	text := fine(t, "faults", "--only", "B9", "--seeds", "1", "--healthy", "0")
	require.Contains(t, text, "1 of 1 classes caught in every run; 0 healthy runs, 0 false alarms")
	for args, says := range map[string]string{"--only=B99": "classes are [B1", "--seeds=0": "at least 1 seed", "--healthy=-1": "0 healthy runs"} {
		code, out, errs := exacta(t, "faults", args)
		require.Equal(t, exitBad, code)
		require.Empty(t, out)
		require.Contains(t, errs, says)
	}
}
