package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/experiments"
)

// sweep has six points of a quarter of a second each.
const sweep = `name: sweep
prompts: {classes: [code], limit: 2, max_tokens: 16}
max_new: 8
repeats: 1
strategies:
- {drafter: ngram, k: [2]}
sweep:
  grid: {"strategies[0].drafter": [ngram, mtp, suffix], "strategies[0].k": [[1], [2]]}
`

// process starts the program as a process of its own.
func process(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	require.NoError(t, cmd.Start())
	return cmd
}

// found is the deterministic part of a sweep's result, with the requests that the
// records of each point have.
func found(t *testing.T, dir string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "results.json"))
	require.NoError(t, err)
	var res experiments.SweepResult
	require.NoError(t, json.Unmarshal(text, &res))
	require.Empty(t, res.Left)
	for _, p := range res.Points {
		reader, err := acceptance.Open(filepath.Join(dir, p.Dir))
		require.NoError(t, err)
		requests := map[string]bool{}
		records := 0
		for r, err := range reader.All() {
			require.NoError(t, err)
			key := fmt.Sprintf("%s/%d", r.Request, r.SeqStep)
			require.False(t, requests[key], "point %d has record %s twice", p.Point, key)
			requests[key] = true
			records++
		}
		out = append(out, fmt.Sprintf("%d %s %s %s: %d records", p.Point, p.Hash, p.Dir, p.Deterministic, records))
	}
	return out
}

// A sweep that is killed at any time, and resumed until it is done, gives what an
// undisturbed one does.
func TestSweepSurvivesKills(t *testing.T) {
	config := write(t, sweep)
	whole := filepath.Join(t.TempDir(), "whole")
	start := time.Now()
	require.NoError(t, process(t, "run", config, "--dir", whole).Wait())
	took := time.Since(start)
	want := found(t, whole)
	require.Len(t, want, 6)

	kills := 3
	if os.Getenv("EXACTA_SOAK") != "" {
		kills = 50
	}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	reruns := 0
	for killed := 0; killed < kills; {
		dir := filepath.Join(t.TempDir(), "run")
		for {
			args := []string{"run", "--resume", dir}
			if !experiments.IsSweep(dir) { // killed before it was begun
				args = []string{"run", config, "--dir", dir}
			}
			cmd := process(t, args...)
			after := time.AfterFunc(time.Duration(random.Int64N(int64(took))), func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
			err := cmd.Wait()
			after.Stop()
			if err == nil {
				break
			}
			require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal(), "seed %d: %v", seed, err)
			killed++
		}
		require.Equal(t, want, found(t, dir), "seed %d", seed)
		reruns++
	}
	t.Logf("%d kills in %d sweeps, seed %d", kills, reruns, seed)
}

// Finished points are not run again; one whose files were changed is.
func TestSweepResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	v := object(t, "run", write(t, sweep), "--dir", dir, "--devices", "cpu:0", "--devices", "cpu:0-1")
	require.Equal(t, []string{"dir", "exact", "left", "lossy", "points", "simulated", "versions"}, keys(v))
	require.Equal(t, true, v["exact"])
	points := v["points"].([]any)
	require.Len(t, points, 6)
	cores := map[string]any{}
	for _, p := range points {
		require.Equal(t, []string{"deterministic", "dir", "hash", "point", "set", "status", "summary"}, keys(p.(map[string]any)))
		summary := p.(map[string]any)["summary"].(map[string]any)
		cores[p.(map[string]any)["status"].(map[string]any)["device"].(string)] = summary["provenance"].(map[string]any)["threads"]
	}
	require.Equal(t, "1", cores["cpu:0"], "a point that is pinned to a core has one thread")
	want := found(t, dir)

	changed := func() (out []time.Time) {
		for _, p := range points {
			info, err := os.Stat(filepath.Join(dir, p.(map[string]any)["dir"].(string), "summary.json"))
			require.NoError(t, err)
			out = append(out, info.ModTime())
		}
		return out
	}
	before := changed()
	out := fine(t, "run", "--resume", dir)
	require.Contains(t, out, "point 5: strategies[0].drafter=suffix strategies[0].k=[2]\nstrategy ")
	require.Contains(t, out, "6 points of 6 are finished")
	require.Equal(t, before, changed())

	summary := filepath.Join(dir, points[2].(map[string]any)["dir"].(string), "summary.json")
	text, err := os.ReadFile(summary)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(summary, append(text, '\n'), 0o644))
	plan := object(t, "run", "--resume", dir, "--dry-run")
	for i, p := range plan["points"].([]any) {
		require.Equal(t, i != 2, p.(map[string]any)["finished"])
	}
	cmd := process(t, "run", "--resume", dir)
	require.NoError(t, cmd.Wait())
	after := changed()
	require.NotEqual(t, before[2], after[2])
	require.Equal(t, slices.Delete(before, 2, 3), slices.Delete(after, 2, 3))
	require.Equal(t, want, found(t, dir))
}

// A dry run lists what would be run, and makes nothing.
func TestSweepDryRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	config := write(t, sweep)
	v := object(t, "run", config, "--dry-run", "--dir", dir)
	require.NoDirExists(t, dir)
	points := v["points"].([]any)
	require.Len(t, points, 6)
	p := points[1].(map[string]any)
	require.Equal(t, []string{"cost", "dir", "finished", "hash", "point", "set"}, keys(p))
	// Two prompts of 16 tokens, 8 new ones: plain, ngram and the reference.
	cost := p["cost"].(map[string]any)
	require.Equal(t, []any{6.0, 96.0, 48.0, 48.0}, []any{cost["requests"], cost["prompt_tokens"], cost["output_tokens"], cost["passes"]})
	require.Positive(t, v["seconds"])
	require.Contains(t, fine(t, "run", config, "--dry-run"), "6 points; about ")
	require.Contains(t, fine(t, "run", "--dry-run"), "1 points; about ")
}

// A point that fails is named, and does not keep the others from being run.
func TestSweepPointFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	config := strings.Replace(sweep, `"strategies[0].drafter": [ngram, mtp, suffix]`, `prompts.file: ["", none.jsonl]`, 1)
	cmd := exec.Command(os.Args[0], "run", write(t, config), "--dir", dir)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitBad, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "point 2 (prompts.file=none.jsonl strategies[0].k=[1]): exacta run ended with exit status 2: prompts.file: open none.jsonl")
	require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
	s, err := experiments.OpenSweep(dir)
	require.NoError(t, err)
	require.Equal(t, []int{2, 3}, s.Left())
}

func TestSweepFlags(t *testing.T) {
	dir := t.TempDir()
	config := write(t, sweep)
	for want, args := range map[string][]string{
		"no sweep was begun there":  {"--resume", dir},
		"--resume takes no file":    {config, "--resume", dir},
		"--point is for --resume":   {config, "--point", "1"},
		"it is cuda:N, or cpu:LIST": {config, "--dir", filepath.Join(dir, "a"), "--devices", "tpu:0"},
		"has no small variant":      {config, "--small"},
		"none of the others can be": {"--resume", dir, "--small"},
	} {
		code, _, errs := exacta(t, append([]string{"run"}, args...)...)
		require.Equal(t, exitBad, code)
		require.Contains(t, errs, want)
		require.Equal(t, 1, strings.Count(errs, "\n"), errs)
	}
	code, _, errs := exacta(t, "run", config, "--dir", filepath.Join(dir, "a"))
	require.Equal(t, exitBad, code)
	require.Contains(t, errs, "already holds a sweep; exacta run --resume")
}
