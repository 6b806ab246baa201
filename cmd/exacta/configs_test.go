package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/experiments"
)

// Every configuration has a small variant; it runs, and is reported with audits of
// which none fails. Without EXACTA_SOAK two of them are run, a sweep among them.
func TestConfigs(t *testing.T) {
	t.Chdir(filepath.Join("..", "..")) // which paths in configurations are relative to
	files, err := filepath.Glob("experiments/*.yaml")
	require.NoError(t, err)
	require.Greater(t, len(files), 12)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			d, err := experiments.ParseDocument(file, text)
			require.NoError(t, err)
			require.NoError(t, d.Small())
			points, err := d.Points(experiments.CheckConfig)
			require.NoError(t, err)
			require.NotEmpty(t, points)
			if os.Getenv("EXACTA_SOAK") == "" && !slices.Contains([]string{"exactness_tax.yaml", "simulated.yaml"}, filepath.Base(file)) {
				t.Skip("checked; EXACTA_SOAK=1 runs it")
			}
			dir := filepath.Join(t.TempDir(), "run")
			fine(t, "run", file, "--small", "--dir", dir)
			v := object(t, "report", dir, "--audit")
			for _, name := range []string{"html", "csv", "markdown"} {
				require.FileExists(t, v[name].(string))
			}
			audits := 0
			for _, r := range v["runs"].([]any) {
				for _, a := range r.(map[string]any)["audits"].([]any) {
					a := a.(map[string]any)
					require.NotEqual(t, "fail", a["verdict"], "%v", a)
					audits++
				}
			}
			require.Positive(t, audits)
		})
	}
}
