package report

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/experiments/load"
)

// What is exported passes the audit of result files, reads back as it was, and has the
// run's figures.
func TestExports(t *testing.T) {
	run := copied(t)
	const name = "0-mtp.k3.greedy.c1"
	answers, err := experiments.ExportAnswers(run, name)
	require.NoError(t, err)
	require.Len(t, answers, 2)
	require.Len(t, answers[0].Choices, 2, "two rounds")
	var out bytes.Buffer
	require.NoError(t, outside.WriteAnswers(&out, answers))
	file := filepath.Join(t.TempDir(), "answers.jsonl")
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
	back, err := outside.ReadAnswers(file, &out)
	require.NoError(t, err)
	require.Equal(t, answers, back)
	sum, err := experiments.ReadSummary(run)
	require.NoError(t, err)
	p := sum.Runs[indexOf(sum, name)]
	tokens := int64(0)
	for _, a := range answers {
		for _, c := range a.Choices {
			tokens += c.Tokens[0]
			require.NotEmpty(t, c.Turns[0])
		}
	}
	require.EqualValues(t, p.Tokens, tokens)
	r, err := Gather([]string{file})
	require.NoError(t, err)
	requireHarmless(t, r)
	require.Equal(t, "imported", r.Runs[0].Stamps[0].Word)
	for _, v := range r.Runs[0].Audits {
		require.NotEqual(t, string(audit.Fail), v.Verdict, v.Why)
	}
	for of, want := range map[string]string{"x": "has no point", "1-mtp.k2.greedy.c1": "is simulated"} {
		_, err := experiments.ExportAnswers(run, of)
		require.ErrorContains(t, err, want)
	}

	dir := loadRun(t)
	b, err := experiments.ExportBench(dir, "plain.1k-8.r0")
	require.NoError(t, err)
	require.Equal(t, 5000, b.Completed)
	require.Equal(t, 0.02, b.TTFTs[0])
	require.InDelta(t, 20, b.TTFT["mean"], 1e-9)
	require.InDelta(t, 380.0/8, b.TPOT["mean"], 1e-9)
	out.Reset()
	require.NoError(t, b.Write(&out))
	file = filepath.Join(t.TempDir(), "bench.json")
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
	read, err := outside.ReadBench(file, &out)
	require.NoError(t, err)
	require.Equal(t, *b, read[0])
	r, err = Gather([]string{file})
	require.NoError(t, err)
	requireHarmless(t, r)
	for _, v := range r.Runs[0].Audits {
		require.NotEqual(t, string(audit.Fail), v.Verdict, v.Why)
	}
	_, err = experiments.ExportBench(dir, "none")
	require.ErrorContains(t, err, "it has plain.1k-8.r0, peer.1k-8.r0")
	// A request that failed counts as that.
	rows := []load.Row{{Request: "a", Session: "a", Phase: load.Measured, Error: "gone", Sent: 1, First: -1, Last: -1, End: 5}}
	f, err := os.Create(filepath.Join(dir, load.CellsDir, "peer.1k-8.r0", load.RequestsFile))
	require.NoError(t, err)
	require.NoError(t, load.WriteRows(f, rows))
	require.NoError(t, f.Close())
	b, err = experiments.ExportBench(dir, "peer.1k-8.r0")
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{b.Completed, b.Failed})
	require.Equal(t, []string{"gone"}, b.Errors)
}
