package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
)

// llamaServer starts the program that tools/llamaserver.sh builds on a model, and gives
// its address.
func llamaServer(t *testing.T, model string, args ...string) string {
	t.Helper()
	program := os.Getenv("EXACTA_LLAMA_SERVER")
	if program == "" {
		t.Skip("EXACTA_LLAMA_SERVER is not set: EXACTA_LLAMA_SERVER=$(tools/llamaserver.sh DIR) builds the server of llama.cpp and names it")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	// Without --no-repack this version crashes on Q4_1.
	cmd := exec.Command(program, append([]string{"-m", model, "--host", "127.0.0.1", "--port", fmt.Sprint(port), "--metrics", "--no-repack", "-t", "1"}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has no state to save
		_ = cmd.Wait()
		_ = log.Close()
	})
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	require.Eventually(t, func() bool {
		r, err := http.Get(address + "/health")
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}, 2*time.Minute, 200*time.Millisecond, "the server does not come up; its log is in %s", log.Name())
	return address
}

// auditLlama audits a server of llama.cpp that has the weights of SmolLM2.
func auditLlama(t *testing.T, args ...string) string {
	t.Helper()
	model := smollm2(t)
	address := llamaServer(t, model, append([]string{"-np", "1", "-c", "2048"}, args...)...)
	prompts := filepath.Join(t.TempDir(), "prompts.jsonl")
	require.NoError(t, os.WriteFile(prompts, []byte(`{"id":"chat","prompt":"<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"}
{"id":"code","prompt":"def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n"}
`), 0o644))
	code, out, errs := exacta(t, "audit", "--endpoint", address, "--model", model, "--prompts", prompts, "--requests", "2", "--max-tokens", "32", "--concurrency", "1")
	t.Log(out)
	require.NotEqual(t, exitBad, code, errs)
	require.Contains(t, out, "llamacpp, model")
	return out
}

// The audit of another engine finds llama.cpp's server honest, plain and with drafts, on
// the same weights: it computes with them as they are stored, in 4 bits, and its tokens
// are the model's first choices or near ties all the same.
func TestLlamaServerAudited(t *testing.T) {
	for name, args := range map[string][]string{
		"plain": nil, "draft model": {"--spec-type", "draft-simple", "-md", smollm2(t), "--spec-draft-n-max", "3"},
	} {
		t.Run(name, func(t *testing.T) {
			out := auditLlama(t, args...)
			require.Contains(t, out, "tokens: pass")
			require.NotContains(t, out, "FAIL")
			require.Contains(t, out, "wrong 0")
		})
	}
}

// Its simulated acceptance is found out: drafts are kept that the model would not say.
func TestLlamaServerSimulates(t *testing.T) {
	out := auditLlama(t, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "2", "--spec-ngram-simple-size-m", "3", "--spec-synth-len", "3.5")
	require.Contains(t, out, "tokens: fail")
}

// The vocabularies of GGUF files, byte-level and SentencePiece's, give the ids of
// llama.cpp. Code points that are none of Unicode's characters are left out: there it
// splits in another way than the library tokenizers.
func TestLlamaServerTokenizes(t *testing.T) {
	for _, model := range []string{"../../engine/checkpoint/testdata/pieces.gguf", smollm2(t)} {
		checkTokenizer(t, llamaServer(t, model, "-np", "1", "-c", "256"), model)
	}
}

func checkTokenizer(t *testing.T, address, model string) {
	t.Helper()
	e, err := registry.Open(model)
	require.NoError(t, err)
	defer e.Close()
	f, err := os.Open("../../engine/tokenizer/testdata/strings.json.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var texts []string
	require.NoError(t, json.NewDecoder(z).Decode(&texts))
	require.Greater(t, len(texts), 2000)
	differ := 0
	for _, text := range texts {
		if strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Cn, r) }) {
			continue
		}
		body, err := json.Marshal(map[string]any{"content": text, "add_special": false, "parse_special": true})
		require.NoError(t, err)
		r, err := http.Post(address+"/tokenize", "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		var out struct{ Tokens []int32 }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&out))
		require.NoError(t, r.Body.Close())
		if ids := e.Tokenizer.Encode(text, false); !slices.Equal(ids, out.Tokens) {
			if differ++; differ <= 8 {
				t.Logf("%s: %q\n got %v\nwant %v", model, text, ids, out.Tokens)
			}
		}
	}
	require.Zero(t, differ, "texts that differ from llama.cpp, of %d", len(texts))
}
