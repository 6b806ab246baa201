package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shared is a buffer that is read while it is written.
type shared struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// started serves until stop is called, which returns the exit code.
func started(t *testing.T, args ...string) (url string, log *shared, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log = &shared{}
	code := make(chan int, 1)
	go func() { code <- run(ctx, append([]string{"serve", "--port", "0"}, args...), io.Discard, log) }()
	address := regexp.MustCompile(`address=(http://[0-9.:]+)`)
	require.Eventually(t, func() bool { return address.MatchString(log.String()) }, 30*time.Second, 5*time.Millisecond, "no address in the log")
	return address.FindStringSubmatch(log.String())[1], log, func() int {
		cancel()
		return <-code
	}
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	a, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

// serve answers, takes its settings from a file with the flags before it, finishes
// what it has when it is told to end, and leaves a directory that stats and audit
// read.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "serve.yaml")
	require.NoError(t, os.WriteFile(config, []byte("name: mine\nsequences: 2\ncontext: 512\nstrategies: [{drafter: ngram, k: 4}]\n"), 0o644))
	url, log, stop := started(t, "--config", config, "--name", "yours", "--records", dir, "--record-prompts")
	status, text := post(t, url+"/v1/completions", `{"model": "yours", "prompt": "package main", "max_tokens": 30, "ignore_eos": true}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"strategy":"ngram","k":4`)
	status, text = post(t, url+"/v1/completions", `{"model": "mine", "prompt": "a"}`)
	require.Equal(t, 404, status, text)
	late := make(chan string, 1)
	go func() {
		_, text := post(t, url+"/v1/completions", `{"prompt": "package main", "max_tokens": 400, "ignore_eos": true}`)
		late <- text
	}()
	require.Eventually(t, func() bool {
		a, err := http.Get(url + "/metrics")
		if err != nil {
			return false
		}
		defer a.Body.Close()
		text, err := io.ReadAll(a.Body)
		return err == nil && strings.Contains(string(text), "exacta_open_answers 1")
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, exitFine, stop(), log.String())
	require.Contains(t, <-late, `"completion_tokens":400`)

	runs, err := filepath.Glob(filepath.Join(dir, "serve-*"))
	require.NoError(t, err)
	require.Len(t, runs, 1)
	var out, errs strings.Builder
	require.Equal(t, exitFine, run(context.Background(), []string{"stats", runs[0]}, &out, &errs), errs.String())
	require.Contains(t, out.String(), "ngram.k4.coupled")
	out.Reset()
	require.Equal(t, exitFine, run(context.Background(), []string{"stats", runs[0], "--load"}, &out, &errs), errs.String())
	require.Regexp(t, `2 requests in \d+ steps.*: 430 tokens, .* decoding x`, out.String())
	out.Reset()
	require.Equal(t, exitFine, run(context.Background(), []string{"stats", runs[0], "--load", "--json"}, &out, &errs), errs.String())
	load := decode(t, out.String())
	require.EqualValues(t, 430, load["load"].(map[string]any)["emitted"])
	require.Len(t, load["requests"], 2)
	require.Positive(t, load["requests"].([]any)[0].(map[string]any)["ttft_ms"])
	require.Equal(t, exitFine, run(context.Background(), []string{"audit", runs[0], "--only", "tokens,counts"}, &out, &errs), out.String()+errs.String())
}

// A port in use, and flags that mean nothing, are one line.
func TestServeRefuses(t *testing.T) {
	t.Setenv("EXACTA_CACHE", t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	for want, args := range map[string][]string{
		"in use":       {"--port", port},
		"--log":        {"--log", "xml"},
		"--otlp":       {"--otlp", "localhost", "--port", "0"},
		"--k":          {"--k", "-1"},
		"max_k":        {"--k", "99"},
		"magic":        {"--draft", "magic", "--port", "0"},
		"pack_cache":   {"--pack-cache", "--backend", "ref", "--port", "0"},
		"on disk":      {"--pack-cache", "--port", "0"},
		"--simulate":   {"--simulate", "often"},
		"no.yaml":      {"--config", "no.yaml"},
		"no such file": {"--model", "/no/such/model", "--port", "0"},
		"jinja":        {"--chat-template", "/no/such.jinja", "--port", "0"},
	} {
		var out, errs strings.Builder
		code := run(context.Background(), append([]string{"serve"}, args...), &out, &errs)
		require.Equal(t, exitBad, code, "%v", args)
		require.Contains(t, errs.String(), want, "%v", args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
}

// The files of a model may be replaced, emptied and removed while it is served: what
// runs goes on with what was loaded.
func TestServeModelReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "engine", "embedded", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	url, log, stop := started(t, "--model", dir, "--name", "m", "--context", "256", "--no-prefix-cache")
	text := regexp.MustCompile(`"text":"[^"]*"`)
	ask := func() string {
		status, answer := post(t, url+"/v1/completions", `{"prompt": "package main", "max_tokens": 20, "ignore_eos": true, "temperature": 0}`)
		require.Equal(t, 200, status, answer)
		return text.FindString(answer)
	}
	before := ask()
	require.NotEmpty(t, before)
	weights := filepath.Join(dir, "model.safetensors")
	require.NoError(t, os.Truncate(weights, 100))
	require.Equal(t, before, ask())
	require.NoError(t, os.WriteFile(weights+".new", []byte("other weights"), 0o644))
	require.NoError(t, os.Rename(weights+".new", weights))
	require.Equal(t, before, ask())
	require.NoError(t, os.RemoveAll(dir))
	require.Equal(t, before, ask())
	require.Equal(t, exitFine, stop(), log.String())
}

// bench serve asks all requests, without an error or anything left.
func TestBenchServe(t *testing.T) {
	var out, errs strings.Builder
	code := run(context.Background(), []string{"bench", "serve", "--requests", "60", "--connections", "20", "--new-tokens", "8", "--json"}, &out, &errs)
	require.Equal(t, exitFine, code, errs.String())
	v := decode(t, out.String())
	require.EqualValues(t, 60, v["requests"])
	require.EqualValues(t, 0, v["errors"])
	require.EqualValues(t, 0, v["goroutines_left"])
	require.Positive(t, v["tok_s"])
	require.Positive(t, v["ratio_to_offline"])
	require.Len(t, v["ttft_ms"], 4)
	for want, args := range map[string][]string{"refused": {"--url", "http://127.0.0.1:1", "--requests", "2"}, "at least 1": {"--requests", "0"}} {
		out.Reset()
		errs.Reset()
		code := run(context.Background(), append([]string{"bench", "serve"}, args...), &out, &errs)
		require.NotEqual(t, exitFine, code)
		require.Contains(t, out.String()+errs.String(), want)
	}
}

// bench servers puts the same requests to each server and compares it with the first.
func TestBenchServers(t *testing.T) {
	one, _, stopOne := started(t, "--draft", "none", "--context", "128")
	defer stopOne()
	two, _, stopTwo := started(t, "--draft", "ngram", "--context", "128")
	defer stopTwo()
	var out, errs strings.Builder
	args := []string{"bench", "servers", "--server", "a=" + one, "--server", "b=" + two, "--concurrency", "1,3", "--rounds", "2", "--new-tokens", "4"}
	require.Equal(t, exitFine, run(context.Background(), append(args, "--json"), &out, &errs), errs.String())
	levels := decode(t, out.String())["levels"].([]any)
	require.Len(t, levels, 2)
	for _, l := range levels {
		ratios := l.(map[string]any)["ratio"].([]any)
		require.Equal(t, []any{1.0, 1.0, 1.0}, ratios[0])
		least, middle, most := ratios[1].([]any)[1].(float64), ratios[1].([]any)[0].(float64), ratios[1].([]any)[2].(float64)
		require.True(t, 0 < least && least <= middle && middle <= most)
	}
	for want, args := range map[string][]string{
		"NAME=URL": {"--server", "http"}, "at least 1": {}, "requests failed": {"--server", "a=" + one, "--server", "b=http://127.0.0.1:1"},
	} {
		errs.Reset()
		require.Equal(t, exitBad, run(context.Background(), append([]string{"bench", "servers"}, args...), &out, &errs))
		require.Contains(t, errs.String(), want)
	}
}
