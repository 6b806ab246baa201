package main

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/acceptance/outside/fakeserver"
	"exacta.dev/exacta/engine/registry"
)

// toyServer serves a toy that is not the embedded model.
func toyServer(t *testing.T, f fakeserver.Fault) string {
	t.Helper()
	toy := &fakeserver.Toy{K: 3, Hit: 0.7, NoStop: true}
	s := httptest.NewServer((&fakeserver.Server{Dialect: outside.VLLM, Script: toy, Fault: f, K: 3, StepTime: time.Millisecond}).Handler())
	t.Cleanup(s.Close)
	return s.URL
}

func TestAuditOfAnEndpoint(t *testing.T) {
	url := toyServer(t, "")
	args := []string{"audit", "--endpoint", url, "--model", registry.Embedded, "--requests", "4", "--max-tokens", "40", "--concurrency", "2"}
	code, out, _ := exacta(t, args...)
	require.Equal(t, exitFalse, code, "its tokens are not the embedded model's")
	require.Contains(t, out, "tokens: fail")
	require.Contains(t, out, "counts: pass")
	require.Contains(t, out, "units of BF16 rounding below the first choice")
	require.Contains(t, out, "blind to: ")

	code, out, _ = exacta(t, append(args, "--json")...)
	require.Equal(t, exitFalse, code)
	v := decode(t, out)
	require.Equal(t, []string{"counts", "eight_percent", "figures", "judged", "server", "tokens", "work"}, keys(v))
	require.Equal(t, "vllm", v["server"].(map[string]any)["dialect"])
}

func TestAuditOfAResultFile(t *testing.T) {
	m := map[string]any{
		"duration": 10.0, "completed": 2, "total_input_tokens": 20, "total_output_tokens": 100,
		"request_throughput": 0.2, "output_throughput": 10.0, "total_token_throughput": 12.0,
	}
	name := filepath.Join(t.TempDir(), "result.json")
	save := func() {
		text, err := json.Marshal(m)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(name, text, 0o644))
	}
	save()
	out := fine(t, "audit", "--results", name)
	require.Contains(t, out, "vllm bench serve, 1 rows")
	require.Contains(t, out, "counts: pass")
	require.Equal(t, []string{"counts", "figures", "file", "format", "rows", "tokens", "work"}, keys(object(t, "audit", "--results", name)))
	m["output_throughput"] = 10.8
	save()
	code, out, _ := exacta(t, "audit", "--results", name)
	require.Equal(t, exitFalse, code)
	require.Contains(t, out, "FAIL duration x output_throughput")
}

func TestAuditOfOthersRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"not both (got \"runs/x\")":          {"--endpoint", "http://localhost:1", "runs/x"},
		"none of the others can be":          {"--endpoint", "http://localhost:1", "--results", "x"},
		"is not an address like":             {"--endpoint", "localhost"},
		"connection refused":                 {"--endpoint", "http://127.0.0.1:1"},
		"--requests 0":                       {"--endpoint", "http://localhost:1", "--requests", "0"},
		"--max-tokens 0":                     {"--endpoint", "http://localhost:1", "--max-tokens", "0"},
		"--concurrency \"1,x\"":              {"--endpoint", "http://localhost:1", "--concurrency", "1,x"},
		"--declared 0.5":                     {"--endpoint", "http://localhost:1", "--declared", "0.5"},
		"--near-tie NaN":                     {"--endpoint", "http://localhost:1", "--near-tie", "NaN"},
		"--drafter \"mtp\"":                  {"--endpoint", "http://localhost:1", "--drafter", "mtp"},
		"--k -1":                             {"--endpoint", "http://localhost:1", "--k", "-1"},
		"result file: open nowhere.json: no": {"--results", "nowhere.json"},
		"accepts 1 arg(s)":                   {},
	} {
		code, out, errs := exacta(t, append([]string{"audit"}, args...)...)
		require.Equal(t, exitBad, code, args)
		require.Empty(t, out)
		require.Contains(t, errs, want)
	}
}
