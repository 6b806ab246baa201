package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
)

// serving is a server of the embedded model with its records.
type serving struct {
	*Served
	web *httptest.Server
	log *bytes.Buffer
}

func serve(t *testing.T, change func(*ServeConfig)) *serving {
	t.Helper()
	cfg := DefaultServe()
	cfg.Threads, cfg.Context, cfg.Sequences, cfg.Records, cfg.RecordPrompts = 1, 384, 8, t.TempDir(), true
	if change != nil {
		change(&cfg)
	}
	s := &serving{log: &bytes.Buffer{}}
	var err error
	s.Served, err = Serve(cfg, ServeOptions{Version: "test", Logger: slog.New(slog.NewTextHandler(s.log, nil))})
	require.NoError(t, err)
	s.web = httptest.NewServer(s.Served)
	return s
}

// end drains and closes the server.
func (s *serving) end(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Drain(context.Background()))
	s.web.Close()
	require.NoError(t, s.Close())
}

func (s *serving) post(ctx context.Context, q map[string]any) (int, map[string]any, error) {
	text, err := json.Marshal(q)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.web.URL+"/v1/completions", bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	text, err = io.ReadAll(a.Body)
	v := map[string]any{}
	if err == nil {
		_ = json.Unmarshal(text, &v) // a stream is none
	}
	return a.StatusCode, v, err
}

// mix asks n requests of many kinds at once; some clients go away.
func (s *serving) mix(t *testing.T, n int) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			q := map[string]any{"prompt": strings.Repeat("func f(x int) {\n", 1+r.IntN(12)), "max_tokens": 5 + r.IntN(40), "seed": i, "n": 1 + i%2}
			if i%3 != 0 {
				q["temperature"] = 0.8
			}
			switch i % 6 {
			case 0:
				q["speculation"] = map[string]any{"strategy": "ngram", "k": 4}
			case 1:
				q["speculation"] = map[string]any{"strategy": "none"}
			case 2:
				q["speculation"] = map[string]any{"rule": "rejection"}
			case 3:
				q["stop"] = []string{"\n\n", "return"}
			case 4:
				q["structured_outputs"] = map[string]any{"regex": "[a-z]{3,20}"}
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i%7 == 6 {
				q["stream"] = true
				time.AfterFunc(time.Duration(20*i)*time.Millisecond, cancel)
			}
			status, v, err := s.post(ctx, q)
			if ctx.Err() == nil && (err != nil || status != http.StatusOK) {
				errs <- fmt.Errorf("request %d: %d %v %w", i, status, v, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// The records of a server pass the audits: preemptions, cache hits, stop strings,
// grammars, sampling rules, cancelled requests and all.
func TestServedAudit(t *testing.T) {
	s := serve(t, func(c *ServeConfig) { c.Engine.Pages, c.Engine.Chunk = 14, 64 })
	s.mix(t, 14)
	s.end(t)
	res, err := Audit(context.Background(), s.Dir, AuditOptions{Only: []string{"tokens", "counts"}})
	require.NoError(t, err)
	for _, r := range res.Reports() {
		require.Equal(t, audit.Pass, r.Verdict, "%s: %s", r.Audit, r.Why)
	}
	finishes := map[engine.Finish]int{}
	outs, err := readLines[output](filepath.Join(s.Dir, outputsFile), "output")
	require.NoError(t, err)
	for _, o := range outs {
		finishes[o.Finish]++
	}
	for _, f := range []engine.Finish{engine.FinishLength, engine.FinishText, engine.FinishCancel} {
		require.Positive(t, finishes[f], "%v: the mix is to have an end of each kind", finishes)
	}

	// A token that no model said, and a stop string that ended nothing, are seen.
	forge := func(name, old, new string) {
		dir := filepath.Join(t.TempDir(), "forged")
		require.NoError(t, os.CopyFS(dir, os.DirFS(s.Dir)))
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Contains(t, string(text), old)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bytes.ReplaceAll(text, []byte(old), []byte(new)), 0o644))
		res, err := Audit(context.Background(), dir, AuditOptions{Only: []string{"counts"}})
		require.NoError(t, err)
		require.Equal(t, audit.Fail, res.Counts.Verdict)
	}
	forge(outputsFile, `"stop_text"`, `"length"`)
	forge(outputsFile, `"finish":"length"`, `"finish":"stop"`)
	forge(requestsFile, `"stop_strings":["\n\n","return"]`, `"stop_strings":["never said"]`)
}

// A server that is killed leaves records that can be read and audited, and the next
// one starts beside them.
func TestServedKilled(t *testing.T) {
	s := serve(t, nil)
	s.mix(t, 12)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.Dir, "records-000001.parquet"))
		return err == nil
	}, 10*time.Second, 20*time.Millisecond)
	// What is on disk now is what a killed process leaves.
	left := filepath.Join(t.TempDir(), "left")
	require.NoError(t, os.CopyFS(left, os.DirFS(s.Dir)))
	s.end(t)
	r, err := acceptance.Open(left)
	require.NoError(t, err)
	n := 0
	for _, err := range r.All() {
		require.NoError(t, err)
		n++
	}
	require.Positive(t, n)
	res, err := Audit(context.Background(), left, AuditOptions{Only: []string{"tokens", "counts"}})
	require.NoError(t, err)
	for _, r := range res.Reports() {
		require.Equal(t, audit.Pass, r.Verdict, "%s: %s", r.Audit, r.Why)
	}
}

// Without prompts the records tell nothing of them, and the audit says so.
func TestServedWithoutPrompts(t *testing.T) {
	s := serve(t, func(c *ServeConfig) {
		c.RecordPrompts = false
		c.Keys = []ServeKey{{Name: "ann", Key: "a secret"}}
	})
	r, err := http.NewRequest(http.MethodPost, s.web.URL+"/v1/completions", strings.NewReader(`{"prompt": "xylophone", "max_tokens": 20, "ignore_eos": true}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer a secret")
	a, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Equal(t, 200, a.StatusCode)
	require.NoError(t, a.Body.Close())
	s.end(t)
	for _, name := range []string{requestsFile, outputsFile, serveFile, summaryFile} {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		require.NoError(t, err)
		require.NotContains(t, string(text), "secret")
		require.NotContains(t, string(text), "prompt_ids")
	}
	res, err := Audit(context.Background(), s.Dir, AuditOptions{Only: []string{"tokens"}})
	require.NoError(t, err)
	require.Equal(t, audit.NotCheckable, res.Verdict)
	require.Contains(t, res.Tokens.Why, "record_prompts")
}

// Where the disk takes no more, serving goes on: the metric counts, the log says it
// once, and the end says that records are missing.
func TestServedDiskFull(t *testing.T) {
	s := serve(t, nil)
	s.breakLog(t)
	for range 3 {
		status, v, err := s.post(context.Background(), map[string]any{"prompt": "package main", "max_tokens": 8, "ignore_eos": true})
		require.NoError(t, err)
		require.Equal(t, 200, status, "%v", v)
	}
	a, err := http.Get(s.web.URL + "/metrics")
	require.NoError(t, err)
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	require.NoError(t, a.Body.Close())
	require.Contains(t, string(text), "exacta_records_lost_total 6")
	s.end(t)
	require.Equal(t, 1, strings.Count(s.log.String(), "serving goes on"), s.log.String())
	sum, err := readSummary(filepath.Join(s.Dir, summaryFile))
	require.NoError(t, err)
	require.True(t, sum.Interrupted)
}

// breakLog closes the files of the log, so that nothing can be written to them.
func (s *serving) breakLog(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Served.log.requests.Close())
	require.NoError(t, s.Served.log.outputs.Close())
	var err error
	s.Served.log.requests.File, err = os.Open(os.DevNull) // to read alone
	require.NoError(t, err)
	s.Served.log.outputs.File, err = os.Open(os.DevNull)
	require.NoError(t, err)
}

// Records are written again when they can be.
func TestServedResumes(t *testing.T) {
	s := serve(t, nil)
	ask := func() {
		status, v, err := s.post(context.Background(), map[string]any{"prompt": "package main", "max_tokens": 8, "ignore_eos": true})
		require.NoError(t, err)
		require.Equal(t, 200, status, "%v", v)
	}
	away := s.Dir + ".away"
	require.NoError(t, os.Rename(s.Dir, away))
	require.Eventually(t, func() bool {
		ask()
		return strings.Contains(s.log.String(), "serving goes on")
	}, 30*time.Second, 50*time.Millisecond)
	require.NoError(t, os.Rename(away, s.Dir))
	s.Served.log.mu.Lock()
	s.Served.log.failing = time.Now().Add(-2 * retryAfter)
	s.Served.log.mu.Unlock()
	ask()
	require.Contains(t, s.log.String(), "written again")
	s.end(t)
	r, err := acceptance.Open(s.Dir)
	require.NoError(t, err)
	for _, err := range r.All() {
		require.NoError(t, err)
	}
	sum, err := readSummary(filepath.Join(s.Dir, summaryFile))
	require.NoError(t, err)
	require.True(t, sum.Interrupted)
}

// Simulated acceptance is told wherever it is.
func TestServedSimulation(t *testing.T) {
	length := 2.5
	s := serve(t, func(c *ServeConfig) { c.Simulate = &Simulate{Length: &length} })
	status, v, err := s.post(context.Background(), map[string]any{"prompt": "package main", "max_tokens": 60, "ignore_eos": true})
	require.NoError(t, err)
	require.Equal(t, 200, status, "%v", v)
	d := v["usage"].(map[string]any)["speculation"].(map[string]any)
	require.Equal(t, true, d["simulated"])
	require.Equal(t, false, d["exact"])
	require.Equal(t, "length=2.5", d["simulation"])
	require.Contains(t, d, "real_accepted")
	status, v, err = s.post(context.Background(), map[string]any{"prompt": "package main", "max_tokens": 6, "speculation": map[string]any{"k": 1}})
	require.NoError(t, err)
	require.Equal(t, 400, status, "an accept length of 2.5 needs two drafts: %v", v)
	status, v, err = s.post(context.Background(), map[string]any{"prompt": "package main", "max_tokens": 6, "speculation": map[string]any{"strategy": "none"}})
	require.NoError(t, err)
	require.Equal(t, 200, status, "%v", v)
	require.Equal(t, false, v["usage"].(map[string]any)["speculation"].(map[string]any)["simulated"])
	s.end(t)
	res, err := Audit(context.Background(), s.Dir, AuditOptions{Only: []string{"counts"}})
	require.NoError(t, err)
	require.Equal(t, audit.Pass, res.Verdict, res.Counts.Why)
}

// Bad configurations are one error that names file, line and key.
func TestServeConfig(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"sequences: 0":                                         "sequences",
		"max_k: 99":                                            "max_k",
		"strategies: [{drafter: magic, k: 2}]":                 "magic",
		"strategies: [{drafter: ngram, k: 99}]":                "strategies[0].k",
		"strategies: [{drafter: ngram}, {drafter: ngram}]":     "twice",
		"strategies: [{drafter: ngram, k: 2, config: {n: 1}}]": "config",
		"policy: lottery":                                      "policy",
		"rule: hope":                                           "rule",
		"record_prompts: true":                                 "record_prompts",
		"keys: [{name: a}]":                                    "keys[0]",
		"keys: [{name: a, sha256: 12}]":                        "keys",
		"colour: red":                                          "unknown key",
		"simulate: {length: 9}\nstrategies: [{drafter: ngram, k: 2}]": "simulate",
		"": "documents",
	} {
		path := filepath.Join(dir, "x.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := LoadServeConfig(path)
		require.ErrorContains(t, err, want, text)
		require.ErrorContains(t, err, path, text)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err := LoadServeConfig(filepath.Join(dir, "none.yaml"))
	require.True(t, errors.Is(err, os.ErrNotExist))
	cfg := DefaultServe()
	cfg.Model = "no such model"
	_, err = Serve(cfg, ServeOptions{Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "no such")
}
