package experiments

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
)

// auditedRun is a small run directory, made once.
var auditedRun = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exacta-audit-")
	if err != nil {
		return "", err
	}
	length := 2.5
	cfg := Default()
	cfg.Name, cfg.MaxNew, cfg.Repeats, cfg.IgnoreEOS = "audited", 12, 1, true
	cfg.Prompts = Prompts{Limit: 2, MaxTokens: 32}
	cfg.Strategies = []Strategy{{Drafter: "mtp", K: []int{3}}, {Drafter: "mtp", K: []int{3}, Simulate: &Simulate{Length: &length}}}
	to := filepath.Join(dir, "run")
	_, err = Run(context.Background(), cfg, RunOptions{Dir: to})
	return to, err
})

// copyOf copies the run directory.
func copyOf(t *testing.T) string {
	t.Helper()
	from, err := auditedRun()
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func TestAuditOfRun(t *testing.T) {
	res, err := Audit(t.Context(), copyOf(t), AuditOptions{})
	require.NoError(t, err)
	require.Equal(t, audit.Pass, res.Verdict, "%+v", res.Reports())
	require.Len(t, res.Reports(), 3)
	res, err = Audit(t.Context(), copyOf(t), AuditOptions{Only: []string{"work"}, Replay: audit.ReplayForced})
	require.NoError(t, err)
	require.Nil(t, res.Tokens)
	require.NotNil(t, res.Work)
}

// segment is the first segment of records.
const segment = "records-000001.parquet"

// segmentsOf lists the segments of a run directory.
func segmentsOf(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "records-*.parquet"))
	require.NoError(t, err)
	return names
}

// Damage of each kind is an error that names the file, or a failed verdict:
// never a pass.
func TestAuditOfDamage(t *testing.T) {
	edit := func(name string, change func(text string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			name := filepath.Join(dir, name)
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			changed := change(string(text))
			require.NotEqual(t, string(text), changed)
			require.NoError(t, os.WriteFile(name, []byte(changed), 0o644))
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, name))) }
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string // of the error
	}{
		"truncated":       {edit(segment, func(s string) string { return s[:len(s)/2] }), segment},
		"a byte flipped":  {edit(segment, func(s string) string { return s[:200] + string(s[200]^1) + s[201:] }), segment},
		"another version": {edit(segment, func(s string) string { return strings.Replace(s, "exacta.schema_version", "exacta.schema_versiox", 1) }), segment},
		"no records": {func(t *testing.T, dir string) {
			for _, name := range segmentsOf(t, dir) {
				require.NoError(t, os.Remove(name))
			}
		}, segment},
		"a segment missing": {func(t *testing.T, dir string) {
			require.NoError(t, os.Rename(filepath.Join(dir, segment), filepath.Join(dir, "records-000002.parquet")))
		}, "records-000002.parquet"},
		"two runs": {func(t *testing.T, dir string) {
			other := t.TempDir()
			w, err := acceptance.NewWriter(other, acceptance.Meta{Run: "other"})
			require.NoError(t, err)
			require.NoError(t, w.Record(&engine.Record{Request: "x", Phase: engine.Decode, NextKind: engine.NextSampled}))
			require.NoError(t, w.Close())
			text, err := os.ReadFile(filepath.Join(other, segment))
			require.NoError(t, err)
			next := fmt.Sprintf("records-%06d.parquet", 1+len(segmentsOf(t, dir)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, next), text, 0o644))
		}, "is of run"},
		"out of order":     {func(t *testing.T, dir string) { shuffle(t, dir) }, segment},
		"no config":        {remove("config.yaml"), "config.yaml"},
		"no prompts":       {remove("prompts.jsonl"), "prompts.jsonl"},
		"no outputs":       {remove("outputs.jsonl"), "outputs.jsonl"},
		"half an output":   {edit("outputs.jsonl", func(s string) string { return s[:len(s)-20] }), "outputs.jsonl, output"},
		"a strange output": {edit("outputs.jsonl", func(s string) string { return strings.Replace(s, "reference-0/", "reference-7/", 1) }), "outputs.jsonl, output 1"},
		"an output twice":  {edit("outputs.jsonl", func(s string) string { return s + s[:strings.Index(s, "\n")+1] }), "has an output already"},
		"half a summary":   {edit("summary.json", func(s string) string { return s[:len(s)/2] }), "summary.json"},
		"half a prompt":    {edit("prompts.jsonl", func(s string) string { return s[:len(s)-20] }), "prompts.jsonl"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t)
			c.damage(t, dir)
			_, err := Audit(t.Context(), dir, AuditOptions{})
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, c := range map[string]struct {
		damage func(t *testing.T, dir string)
		want   string // of the reasons
	}{
		"another prompt":     {edit("prompts.jsonl", func(s string) string { return strings.Replace(s, `"prompt_ids":[`, `"prompt_ids":[5,`, 1) }), "reads"},
		"another figure":     {edit("summary.json", func(s string) string { return strings.Replace(s, `"accept_length": 1`, `"accept_length": 1.08`, 1) }), "an accept length of"},
		"simulation removed": {edit("config.yaml", func(s string) string { return strings.Replace(s, "length: 2.5", "length: 3.5", 1) }), "length=3.5"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t)
			c.damage(t, dir)
			res, err := Audit(t.Context(), dir, AuditOptions{})
			require.NoError(t, err)
			require.Equal(t, audit.Fail, res.Verdict)
			if c.want != "reads" {
				require.Contains(t, res.Counts.Why, c.want)
			}
		})
	}
}

// shuffle writes a run's records back with two steps exchanged.
func shuffle(t *testing.T, dir string) {
	t.Helper()
	reader, err := acceptance.Open(dir)
	require.NoError(t, err)
	var records []*engine.Record
	for r, err := range reader.All() {
		require.NoError(t, err)
		records = append(records, r)
	}
	records[4], records[9] = records[9], records[4]
	for _, name := range segmentsOf(t, dir) {
		require.NoError(t, os.Remove(name))
	}
	w, err := acceptance.NewWriter(dir, reader.Meta())
	require.NoError(t, err)
	for _, r := range records {
		if err := w.Record(r); err != nil {
			break // the writer refuses too
		}
	}
	_ = w.Close()
}
