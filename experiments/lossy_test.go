package experiments

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
)

// A run with a lossy rule says so everywhere, and calls nothing exact.
func TestLossyRun(t *testing.T) {
	cfg := Default()
	cfg.MaxNew, cfg.Repeats = 10, 1
	cfg.Prompts = Prompts{Classes: []string{"code"}, Limit: 2, MaxTokens: 16}
	cfg.Strategies = []Strategy{
		{Drafter: "mtp", K: []int{2}, Rule: "threshold:delta=0.5,single=0.2"}, {Drafter: "mtp", K: []int{2}, Rule: "typical"}, {Drafter: "ngram", K: []int{2}},
	}
	dir := filepath.Join(t.TempDir(), "run")
	sum, err := Run(t.Context(), cfg, RunOptions{Dir: dir})
	require.NoError(t, err)
	require.True(t, sum.Lossy)
	require.True(t, sum.AllExact())
	rules := []string{"greedy", "threshold:single=0.2,delta=0.5", "typical", "greedy"}
	for i, r := range sum.Runs {
		require.Nil(t, r.Exact)
		require.Equal(t, rules[i], r.Rule)
		require.Equal(t, r.Rule != "greedy", r.Lossy)
	}
	var out strings.Builder
	require.NoError(t, sum.Table(&out))
	require.NotRegexp(t, `(?i)\b(exact|lossless)\b`, out.String())
	lines := strings.Split(out.String(), "\n")
	for i, end := range []string{"output", "n/a", "LOSSY", "LOSSY", "n/a"} {
		require.True(t, strings.HasSuffix(lines[i], " "+end), "%q", lines[i])
	}
	require.Contains(t, lines[2], " threshold:single=0.2,delta=0.5 (lossy) ")
	require.Contains(t, out.String(), "\nlossy: ")

	// So do the records, and what was run is in their provenance.
	const lossy = "threshold:single=0.2,delta=0.5; typical"
	require.Equal(t, lossy, sum.Provenance["lossy"])
	reader, err := acceptance.Open(dir)
	require.NoError(t, err)
	require.Equal(t, lossy, reader.Meta().Provenance["lossy"])
	g := acceptance.NewGroup(acceptance.ByPooledPoint)
	for r, err := range reader.All() {
		require.NoError(t, err)
		require.Equal(t, r.Rule != "greedy", r.Lossy)
		g.Add(r)
	}
	for _, s := range acceptance.Speedups(g) {
		p := acceptance.ParsePoint(s.Point)
		require.Contains(t, rules, p.Rule)
		require.Equal(t, p.Rule != "greedy", s.Lossy)
		require.Equal(t, p.Rule != "greedy", g.By[s.Point].Summary().Lossy)
	}

	// The audits read the run, and don't pass its tokens.
	back, err := LoadConfig(filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	require.Equal(t, cfg.points(), back.points())
	require.Equal(t, []audit.Outcome{audit.NotCheckable, audit.Pass}, verdicts(t, dir))
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	forged := strings.ReplaceAll(string(text), `"lossy": true`, `"lossy": false`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "summary.json"), []byte(forged), 0o644))
	require.Equal(t, []audit.Outcome{audit.NotCheckable, audit.Fail}, verdicts(t, dir))
}

// verdicts are those of the tokens and counts audits.
func verdicts(t *testing.T, dir string) []audit.Outcome {
	t.Helper()
	res, err := Audit(t.Context(), dir, AuditOptions{Only: []string{"tokens", "counts"}})
	require.NoError(t, err)
	return []audit.Outcome{res.Tokens.Verdict, res.Counts.Verdict}
}
