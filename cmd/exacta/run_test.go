package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// tiny is an experiment of a second.
const tiny = `name: tiny
prompts: {classes: [code], limit: 2, max_tokens: 24}
max_new: 8
strategies:
- {drafter: ngram, k: [2]}
- {drafter: mtp, k: [2]}
repeats: 1
`

// tinyRun runs tiny once for all tests, which must not change its directory.
var tinyRun = sync.OnceValues(func() (dir, out string) {
	dir, err := os.MkdirTemp("", "exacta-cmd-")
	if err != nil {
		panic(err)
	}
	temporary = append(temporary, dir)
	config := filepath.Join(dir, "tiny.yaml")
	if err := os.WriteFile(config, []byte(tiny), 0o644); err != nil {
		panic(err)
	}
	var stdout, stderr strings.Builder
	dir = filepath.Join(dir, "run")
	if code := run(context.Background(), []string{"run", config, "--dir", dir, "--json"}, &stdout, &stderr); code != exitFine {
		panic(stderr.String())
	}
	return dir, stdout.String()
})

// copyRun returns a copy of the tiny run that a test may change.
func copyRun(t *testing.T) string {
	t.Helper()
	dir, _ := tinyRun()
	to := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func TestRunJSON(t *testing.T) {
	dir, out := tinyRun()
	v := decode(t, out)
	require.Equal(t, []string{"dir", "interrupted", "lossy", "name", "prompts", "provenance", "runs", "simulated"}, keys(v))
	require.Equal(t, false, v["interrupted"])
	require.Equal(t, false, v["simulated"])
	require.Equal(t, 2.0, v["prompts"])
	runs := v["runs"].([]any)
	require.Len(t, runs, 3)
	for i, want := range []string{"none", "ngram", "mtp"} {
		r := runs[i].(map[string]any)
		require.Equal(t, []string{
			"accept_length", "acceptance_by_position", "concurrency", "decode_ratio", "decode_tok_s", "draft_share", "drafter", "exact",
			"fresh_accept_length", "fresh_ratio", "k", "lossy", "preemptions", "ratio_to_plain", "repeated_4grams", "rule", "seconds", "simulated", "step_ms", "strategy", "tok_s", "tokens",
		}, keys(r))
		require.Equal(t, want, r["drafter"])
		require.Equal(t, true, r["exact"])
		require.Equal(t, false, r["simulated"])
		require.Equal(t, false, r["lossy"])
		require.Equal(t, "greedy", r["rule"])
		require.Equal(t, 1.0, r["concurrency"])
		require.Equal(t, 16.0, r["tokens"])
		require.Positive(t, r["tok_s"])
	}
	require.Equal(t, 1.0, runs[0].(map[string]any)["ratio_to_plain"])
	require.Equal(t, 1.0, runs[0].(map[string]any)["accept_length"])
	require.Greater(t, runs[2].(map[string]any)["accept_length"], 1.0)
	require.Len(t, runs[2].(map[string]any)["acceptance_by_position"], 2)

	// summary.json is the same.
	text, err := os.ReadFile(filepath.Join(dir, "summary.json"))
	require.NoError(t, err)
	require.Equal(t, v, decode(t, string(text)))
	for _, name := range []string{"config.yaml", "prompts.jsonl", "outputs.jsonl", "records-000001.parquet"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
	// A directory holds one run.
	code, _, errs := exacta(t, "run", filepath.Join(dir, "config.yaml"), "--dir", dir)
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "already holds a run")
}

// The run's own config.yaml repeats the run, here as a table.
func TestRunTable(t *testing.T) {
	dir, _ := tinyRun()
	to := filepath.Join(t.TempDir(), "again")
	out := fine(t, "run", filepath.Join(dir, "config.yaml"), "--dir", to)
	lines := strings.Split(out, "\n")
	require.True(t, strings.HasPrefix(lines[0], "strategy  k  rule    in flight  tok/s"), out)
	for i, name := range []string{"none ", "ngram ", "mtp "} {
		require.True(t, strings.HasPrefix(lines[i+1], name), out)
		require.True(t, strings.HasSuffix(lines[i+1], "yes"), out)
	}
	require.Contains(t, out, "2 prompts; records, outputs and summary.json in "+to)
	require.Equal(t, outputsOf(t, dir), outputsOf(t, to))
}

func outputsOf(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "outputs.jsonl"))
	require.NoError(t, err)
	return string(text)
}

func TestAudit(t *testing.T) {
	dir, _ := tinyRun()
	v := object(t, "audit", dir, "--only", "tokens")
	require.Equal(t, []string{"run", "tokens", "verdict"}, keys(v))
	a := v["tokens"].(map[string]any)
	require.Equal(t, []string{"audit", "blind", "checks", "findings", "run", "verdict"}, keys(a))
	require.Equal(t, "pass", a["verdict"])
	v = object(t, "audit", dir)
	require.Equal(t, []string{"counts", "run", "tokens", "verdict", "work"}, keys(v))
	require.Equal(t, "pass", v["verdict"])
	require.Contains(t, keys(v["counts"].(map[string]any)), "figures")
	out := fine(t, "audit", dir)
	for _, line := range []string{
		"tokens: pass (run run)\n", "  ok   token under teacher forcing: 64\n", "  ok   logits hash under teacher forcing: 64\n",
		"  ok   token and logits hash under plain replay: 8\n", "counts: pass (run run)\n", "work: pass (run run)\n",
	} {
		require.Contains(t, out, line)
	}
	require.NotContains(t, fine(t, "audit", dir, "--only", "counts", "--replay", "forced"), "tokens: pass")
}

// rewrite passes the records of a run through change, which says whether a record
// stays.
func rewrite(t *testing.T, dir string, change func(i int, r *engine.Record) bool) {
	t.Helper()
	reader, err := acceptance.Open(dir)
	require.NoError(t, err)
	var records []*engine.Record
	for r, err := range reader.All() {
		require.NoError(t, err)
		records = append(records, r)
	}
	old, err := filepath.Glob(filepath.Join(dir, "records-*.parquet"))
	require.NoError(t, err)
	for _, name := range old {
		require.NoError(t, os.Remove(name))
	}
	w, err := acceptance.NewWriter(dir, reader.Meta())
	require.NoError(t, err)
	for i, r := range records {
		if change(i-len(records), r) {
			require.NoError(t, w.Record(r))
		}
	}
	require.NoError(t, w.Close())
}

// isLast matches the last records of a run, which are of the mtp strategy.
func isLast(i int) bool { return i == -1 }

// An audit fails on what is not what plain decoding gives: exit code 1.
func TestAuditFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(dir string)
		want   string
	}{
		"another token": {func(dir string) {
			rewrite(t, dir, func(i int, r *engine.Record) bool {
				if isLast(i) {
					last := len(r.EmittedIDs) - 1
					other := r.EmittedIDs[last] ^ 1
					if last < int(r.Accepted) {
						r.ProposedIDs[last] = other
					} else {
						r.NextID = other
					}
					r.EmittedIDs[last] = other
				}
				return true
			})
		}, "output 7"},
		"another hash": {func(dir string) {
			rewrite(t, dir, func(i int, r *engine.Record) bool {
				if isLast(i) {
					r.Hashes[0]++
				}
				return true
			})
		}, "logits"},
		"a record less": {func(dir string) {
			rewrite(t, dir, func(i int, _ *engine.Record) bool { return !isLast(i) })
		}, "1-mtp.k2.greedy.c1.r0/code-01"},
		"a request less": {func(dir string) {
			rewrite(t, dir, func(_ int, r *engine.Record) bool {
				return !strings.HasPrefix(r.Request, "1-mtp.k2.greedy.c1.r0/code-01")
			})
		}, "of which there is no record"},
		"another output": {func(dir string) {
			text := outputsOf(t, dir)
			at := strings.LastIndex(text, "]")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "outputs.jsonl"), []byte(text[:at]+",1"+text[at:]), 0o644))
		}, "the client received 9 tokens, the records emitted 8"},
		"an output less": {func(dir string) {
			lines := strings.SplitAfter(strings.TrimSpace(outputsOf(t, dir)), "\n")
			require.NoError(t, os.WriteFile(filepath.Join(dir, "outputs.jsonl"), []byte(strings.Join(lines[:len(lines)-1], "")), 0o644))
		}, "the records emitted 8 tokens, and the client received nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyRun(t)
			c.change(dir)
			code, out, errs := exacta(t, "audit", dir)
			require.Equal(t, exitFalse, code, "%s%s", out, errs)
			require.True(t, strings.HasPrefix(out, "tokens: fail ("), out)
			require.Contains(t, out, c.want)
			code, out, _ = exacta(t, "audit", dir, "--json")
			require.Equal(t, exitFalse, code)
			require.Equal(t, "fail", decode(t, out)["tokens"].(map[string]any)["verdict"])
		})
	}
}

// What is not the directory of a run is bad input; another model or arithmetic
// can't be compared: that is not a pass.
func TestAuditRefuses(t *testing.T) {
	for name, want := range map[string]string{"config.yaml": "config.yaml", "prompts.jsonl": "prompts.jsonl", "outputs.jsonl": "outputs.jsonl"} {
		dir := copyRun(t)
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		code, _, errs := exacta(t, "audit", dir)
		require.Equal(t, exitBad, code, name)
		require.Contains(t, errs, want)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
	dir := copyRun(t)
	config, err := os.ReadFile(filepath.Join(dir, "config.yaml"))
	require.NoError(t, err)
	other := strings.Replace(string(config), "backend: cpu", "backend: ref", 1)
	require.NotEqual(t, string(config), other)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(other), 0o644))
	code, out, _ := exacta(t, "audit", dir)
	require.Equal(t, exitFalse, code)
	require.Contains(t, out, "not checkable")
	require.Contains(t, out, "the run's arithmetic is")
}

// A run that was killed has no summary.json, and may lack the records of its last
// steps: the rest is still checked.
func TestAuditOfKilledRun(t *testing.T) {
	dir := copyRun(t)
	require.NoError(t, os.Remove(filepath.Join(dir, "summary.json")))
	rewrite(t, dir, func(i int, _ *engine.Record) bool { return !isLast(i) })
	a := object(t, "audit", dir)["tokens"].(map[string]any)
	require.Equal(t, "pass", a["verdict"])
	require.Contains(t, a["notes"], "1 requests were cut short by the end of the run, and compared as far as their records go")

	rewrite(t, dir, func(i int, r *engine.Record) bool {
		if isLast(i) {
			r.Hashes[0]++
		}
		return true
	})
	code, out, _ := exacta(t, "audit", dir)
	require.Equal(t, exitFalse, code, out)
	require.Contains(t, out, "1-mtp.k2.greedy.c1.r0/code-01")
}

// Sampling with the coupled rule is exact too; with the rejection rule nothing is
// promised, and nothing is claimed.
func TestRunSampling(t *testing.T) {
	config := strings.Replace(tiny, "name: tiny", "name: sampled\nrule: coupled\nsampling: {temperature: 0.9, top_p: 0.95, seed: 7}", 1)
	config = strings.Replace(config, "- {drafter: ngram, k: [2]}", "- {drafter: ngram, k: [2], rule: rejection}", 1)
	dir := filepath.Join(t.TempDir(), "run")
	v := object(t, "run", write(t, config), "--dir", dir)
	var exact []any
	for _, r := range v["runs"].([]any) {
		exact = append(exact, r.(map[string]any)["exact"])
	}
	require.Equal(t, []any{true, nil, true}, exact)
	a := object(t, "audit", dir)["tokens"].(map[string]any)
	require.Equal(t, "pass", a["verdict"])
	names := ""
	for _, c := range a["checks"].([]any) {
		names += c.(map[string]any)["name"].(string) + "\n"
	}
	require.Contains(t, names, "drafts, decisions and logits repeat when the request runs alone")
	require.Contains(t, names, "sampled tokens fill the target's distribution evenly")
}

// Each output line says what the table is about.
func TestOutputs(t *testing.T) {
	dir, _ := tinyRun()
	lines := strings.Split(strings.TrimSpace(outputsOf(t, dir)), "\n")
	require.Len(t, lines, 8)
	texts := map[string][]string{}
	for _, line := range lines {
		v := decode(t, line)
		require.Equal(t, []string{"finish", "output_ids", "prompt", "request", "text"}, keys(v))
		require.Equal(t, "length", v["finish"])
		require.Len(t, v["output_ids"], 8)
		texts[v["prompt"].(string)] = append(texts[v["prompt"].(string)], v["text"].(string))
	}
	require.Len(t, texts, 2)
	for _, same := range texts {
		require.Len(t, slices.Compact(same), 1)
	}
	var p struct {
		IDs []int32 `json:"prompt_ids"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "prompts.jsonl"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(strings.SplitN(string(text), "\n", 2)[0]), &p))
	require.Len(t, p.IDs, 24)
}
