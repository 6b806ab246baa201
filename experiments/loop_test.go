package experiments

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
)

// looped is an experiment that the loop decodes: drafters on the device and on the
// host, lengths that a policy chooses, sequences that come and go.
func looped() Config {
	cfg := Default()
	cfg.Name, cfg.Backend, cfg.MaxNew, cfg.Repeats, cfg.Rule = "looped", "fakedev", 40, 1, "coupled"
	cfg.Prompts = Prompts{Limit: 4, MaxTokens: 40}
	cfg.Concurrency = []int{1, 3}
	cfg.Strategies = []Strategy{
		{Drafter: "mtp", K: []int{3}}, {Drafter: "ngram", K: []int{3}}, {Drafter: "mtp", K: []int{4}, Length: draft.Length{ByBatch: [][]int{{2, 1}}}},
	}
	return cfg
}

// A run that the loop decoded is exact, and its audits pass: the records' work is what
// they claim, rows that belong to no sequence included.
func TestLoopedRunPassesItsAudits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum, err := Run(t.Context(), looped(), RunOptions{Dir: dir})
	require.NoError(t, err)
	require.True(t, sum.AllExact())
	reader, err := acceptance.Open(dir)
	require.NoError(t, err)
	var idle, drafts int
	for r, err := range reader.All() {
		require.NoError(t, err)
		idle += int(r.IdleRows)
		drafts += len(r.ProposedIDs)
	}
	require.Positive(t, idle, "a program's rows are never more than its sequences': no loop decoded")
	require.Positive(t, drafts)
	res, err := Audit(t.Context(), dir, AuditOptions{})
	require.NoError(t, err)
	for _, r := range res.Reports() {
		require.Equal(t, audit.Pass, r.Verdict, "%s: %+v", r.Audit, r)
	}
}

// The loop is measured with heads of both kinds, on a device that is a CPU here.
func TestLoopIsMeasured(t *testing.T) {
	entry, err := registry.Open("random:embedded")
	require.NoError(t, err)
	defer entry.Close()
	be, err := OpenBackend(BackendChoice{Name: "fakedev"})
	require.NoError(t, err)
	defer be.Close()
	for _, name := range append([]string{"none"}, Drafts...) {
		b := &stepBench{o: StepBenchOptions{K: 2}, source: entry.Source}
		b.m, err = model.Load(be, b.source, model.Options{MaxTokens: 300, MTP: name == "mtp"})
		require.NoError(t, err)
		c, err := b.loop(name, 3)
		require.NoError(t, err)
		require.Positive(t, c.Ms)
		require.Equal(t, name != "none", c.K > 0)
		require.GreaterOrEqual(t, c.Idle, 0.0)
	}
}
