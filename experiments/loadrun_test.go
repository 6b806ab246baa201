package experiments

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/experiments/load"
)

// fakeEnv makes the test binary a stand-in server on the port of its last argument:
// TestMain.
const fakeEnv = "EXACTA_TEST_FAKE"

func TestMain(m *testing.M) {
	if os.Getenv(fakeEnv) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("listening", os.Args[1:])
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[len(os.Args)-1])
	if err != nil || os.Args[1] == "share=0.9" {
		fmt.Println("out of memory")
		os.Exit(3)
	}
	perStep := 1
	if os.Args[1] == "share=0.75" {
		perStep = 40
	}
	f := &load.Fake{Dialect: outside.VLLM, First: time.Millisecond, Step: 3 * time.Millisecond, PerStep: perStep, Info: map[string]any{"root": "org/embedded", "max_model_len": 64}}
	panic(http.Serve(l, f.Handler()))
}

func runLoadText(t *testing.T, dir, text string) *load.Summary {
	t.Helper()
	cfg, err := ParseLoadExperiment("l.yaml", []byte(text))
	require.NoError(t, err)
	sum, err := RunLoad(t.Context(), cfg, RunOptions{Dir: dir, Version: "test"})
	require.NoError(t, err)
	return sum
}

// The engine in this process: every request is answered, targets get the same, the
// records pass the audits, and shares of time come from them.
func TestLoadEngine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := runLoadText(t, dir, `
name: small
workload: {source: random, seed: 7, config: {input: 20, output: 12, sessions: 8}}
arrivals: {process: closed, config: {lanes: 2}}
measure: {warmup: 2}
varies: [draft]
targets:
  - {name: plain, engine: {strategies: [{drafter: none, k: 0}], sequences: 4}}
  - {name: mtp, engine: {strategies: [{drafter: mtp, k: 3}], sequences: 4}}
`)
	require.Len(t, sum.Cells, 2)
	hashes := map[string]string{}
	for _, c := range sum.Cells {
		require.Equal(t, sum.Cells[0].Plan, c.Plan)
		require.Empty(t, c.FirstErr)
		require.Equal(t, 6, c.Whole.Finished)
		require.Equal(t, int64(6*12), c.Whole.OutputTokens)
		require.NotNil(t, c.Engine)
		require.Positive(t, c.Engine.Steps)
		rows, err := load.ReadRowsFile(filepath.Join(dir, load.CellsDir, c.Name(), load.RequestsFile))
		require.NoError(t, err)
		require.Len(t, rows, 8)
		for _, r := range rows {
			require.NotEmpty(t, r.Tokens, "the server tells token ids")
			if hashes[r.Request] == "" {
				hashes[r.Request] = r.OutputHash
			}
			require.Equal(t, hashes[r.Request], r.OutputHash, "greedy answers are those of plain decoding")
		}
	}
	require.Equal(t, 1.0, sum.Cells[0].Engine.AcceptLength)
	require.Greater(t, sum.Cells[1].Engine.AcceptLength, 1.0)
	require.Positive(t, sum.Cells[1].Engine.DraftShare)
	require.Len(t, sum.Comparisons, 1)
	require.Empty(t, sum.Comparisons[0].Unfair)
	var table strings.Builder
	require.NoError(t, LoadTable(&table, sum))
	require.Contains(t, table.String(), "mtp against plain at load: ")
	for _, target := range sum.Targets {
		require.NotEmpty(t, target.Records)
		res, err := Audit(t.Context(), filepath.Join(dir, target.Records), AuditOptions{Only: []string{"tokens", "counts"}})
		require.NoError(t, err)
		require.Equal(t, audit.Pass, res.Verdict)
	}
	var again load.Summary
	text, err := os.ReadFile(filepath.Join(dir, load.SummaryFile))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, load.Kind, again.Kind)
}

const fakes = `
name: fakes
workload: {source: random, seed: 7, config: {input: 20, output: 12, sessions: 12}}
arrivals: {process: closed, config: {lanes: 2}}
points: [{name: a}, {name: b, workload: {input: 5}, arrivals: {lanes: 3}}]
repeats: 2
slo: {ttft_ms: 1000}
targets:
  - {name: slow, fake: {dialect: sglang, first_ms: 8, step_ms: 4, per_step: 1}}
  - {name: fast, fake: {dialect: vllm, first_ms: 4, step_ms: 2, per_step: 2}}
`

// A directory that lacks cells, and one that was interrupted, is gone on with: what
// is there is kept, and nothing is lost or there twice.
func TestLoadResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first := runLoadText(t, dir, fakes)
	require.Len(t, first.Cells, 8)
	cell := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, load.CellsDir, name, load.CellFile))
		require.NoError(t, err)
		return text
	}
	kept := cell("slow.a.r0")
	require.NoError(t, os.Remove(filepath.Join(dir, load.CellsDir, "fast.b.r1", load.CellFile)))
	again := runLoadText(t, dir, fakes)
	require.Equal(t, kept, cell("slow.a.r0"))
	require.Len(t, again.Cells, 8)
	for i, c := range again.Cells {
		require.Equal(t, first.Cells[i].Name(), c.Name())
		require.Equal(t, first.Cells[i].Plan, c.Plan)
		if c.Name() != "fast.b.r1" {
			require.Equal(t, first.Cells[i].InWindow, c.InWindow)
		}
	}
	cfg, err := ParseLoadExperiment("l.yaml", []byte(strings.Replace(fakes, "seed: 7", "seed: 8", 1)))
	require.NoError(t, err)
	_, err = RunLoad(t.Context(), cfg, RunOptions{Dir: dir})
	require.ErrorContains(t, err, "already holds a run")
	ctx, cancel := context.WithCancel(t.Context())
	stopped := filepath.Join(t.TempDir(), "stopped")
	sum, err := RunLoad(ctx, cfg, RunOptions{Dir: stopped, Progress: func(text string) {
		if strings.HasPrefix(text, "slow.b.r0: 3 ") {
			cancel()
		}
	}})
	require.ErrorIs(t, err, ErrInterrupted)
	require.True(t, sum.Interrupted)
	require.Len(t, sum.Cells, 1)
	sum, err = RunLoad(t.Context(), cfg, RunOptions{Dir: stopped})
	require.NoError(t, err)
	require.Len(t, sum.Cells, 8)
}

// A server that the run starts is tuned, found ready, logged and ended; a comparison
// with what is not alike says so.
func TestLoadStarted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	sum := runLoadText(t, dir, fmt.Sprintf(`
name: started
workload: {source: random, seed: 7, config: {input: 20, output: 40, sessions: 4}}
arrivals: {process: closed, config: {lanes: 2}}
targets:
  - {name: own, engine: {strategies: [{drafter: none, k: 0}], sequences: 4}}
  - name: peer
    command: [%q, "share={share}", "{port}"]
    url: "http://127.0.0.1:{port}"
    env: {%s: "1"}
    ready_seconds: 20
    declares: {dtype: float16, max_sequences: "4", draft: none}
    tune: {share: ["0.5", "0.75", "0.9"]}
  - {name: fake, fake: {dialect: llamacpp, per_step: 1}}
`, os.Args[0], fakeEnv))
	peer := sum.Target("peer")
	require.Equal(t, "started", peer.Kind)
	require.Len(t, peer.Tuned, 3)
	var chosen []string
	for _, tried := range peer.Tuned {
		if tried.Chosen {
			chosen = append(chosen, tried.Settings["share"])
		}
	}
	require.Equal(t, []string{"0.75"}, chosen, "which yields more tokens a step")
	require.Contains(t, peer.Tuned[2].Error, "the server ended before it was ready (exit status 3)")
	log, err := os.ReadFile(filepath.Join(dir, load.TargetsDir, "peer", "server.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "out of memory")
	_, err = http.Get(peer.Address + "/health")
	require.Error(t, err, "it was ended")
	require.Equal(t, map[string]string{"weights": "embedded", "context": "64", "dtype": "float16", "max_sequences": "4", "draft": "none"}, peer.Claims)
	require.Equal(t, "config", peer.Sources["dtype"])
	require.Len(t, sum.Comparisons, 2)
	require.False(t, sum.Comparisons[0].Fair)
	require.Contains(t, sum.Comparisons[0].Unfair, "dtype: peer has float16, own has bf16")
	require.True(t, slices.ContainsFunc(sum.Comparisons[1].Unfair, func(s string) bool { return strings.Contains(s, "stand-in") }))
	var table strings.Builder
	require.NoError(t, LoadTable(&table, sum))
	for _, want := range []string{"FAKE: fake generates nothing", "tuned peer map[share:0.75]:", "; chosen", "UNFAIR: dtype", "not checked: kv_bytes"} {
		require.Contains(t, table.String(), want)
	}
	_, err = RunLoad(t.Context(), LoadExperiment{Name: "x"}, RunOptions{})
	require.Error(t, err)
}

func TestLoadConfigErrors(t *testing.T) {
	base := "workload: {config: {sessions: 2}}\ntargets: [{name: a, engine: {}}]\n"
	_, err := ParseLoadExperiment("l.yaml", []byte(base))
	require.NoError(t, err)
	require.True(t, IsLoad([]byte(base)))
	require.False(t, IsLoad([]byte("strategies: [{drafter: mtp}]")))
	require.False(t, IsLoad([]byte("- a")))
	for text, want := range map[string]string{
		"targets: []":                                                "l.yaml:1: targets: is empty",
		base + "workload: {}\n":                                      "l.yaml:3",
		base + "odd: 1\n":                                            "l.yaml:3: odd: unknown",
		base + "repeats: 0\n":                                        "l.yaml:3: repeats: 0 is out of range",
		base + "baseline: b\n":                                       `l.yaml:3: baseline: "b" is not a target`,
		base + "varies: [mood]\n":                                    `l.yaml:3: varies[0]: "mood" is not one of`,
		base + "arrivals: {process: odd}\n":                          `unknown arrival process "odd"`,
		base + "arrivals: {config: {lanes: many}}\n":                 "arrivals.config.lanes: want a whole number",
		base + "points: [{name: a, workload: {input: 1.5}}]\n":       "workload.config.input: want a whole number",
		base + "points: [{name: a/b}]\n":                             "points[0].name",
		base + "points: [{name: a}, {name: a}]\n":                    "points[1].name",
		base + "measure: {seconds: -1}\n":                            "measure.seconds: -1 is out of range",
		"targets: [{name: a}]":                                       "has 0 of engine, url and fake",
		"targets: [{name: a, url: x, engine: {}}]":                   "has 2 of engine, url and fake",
		"targets: [{name: a, engine: {sequences: 0}}]":               "targets[0].engine: sequences: 0",
		"targets: [{name: a, engine: {odd: 0}}]":                     "targets[0].engine: odd: unknown",
		"targets: [{name: a, engine: {}, command: [x]}]":             "targets[0].command: needs the server's url",
		"targets: [{name: a, url: x, tune: {b: [c]}}]":               "which are for servers that command starts",
		"targets: [{name: a, url: x, declares: {mood: good}}]":       `targets[0].declares: "mood" is not one of`,
		"targets: [{name: a, fake: {dialect: odd, per_step: 1}}]":    "targets[0].fake: needs a dialect",
		"targets: [{name: a, engine: {}}]\nworkload: {source: weka}": "workload.config: path is empty",
		"targets: [{name: a, engine: {}}, {name: a, engine: {}}]":    "targets[1].name",
	} {
		_, err := ParseLoadExperiment("l.yaml", []byte(text))
		require.ErrorContains(t, err, want, text)
	}
	require.Equal(t, []map[string]string{{"a": "1", "b": "x"}, {"a": "1", "b": "y"}, {"a": "2", "b": "x"}, {"a": "2", "b": "y"}}, combinations(map[string][]string{"b": {"x", "y"}, "a": {"1", "2"}}))
	require.Len(t, combinations(nil), 1)
}
