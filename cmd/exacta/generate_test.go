package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const prompt = "package main\n\nimport (\n"

// Text is the prompt and what follows, whatever drafts it; statistics are beside
// the result.
func TestGenerate(t *testing.T) {
	args := []string{"generate", "--max-tokens", "12", prompt}
	code, plain, errs := exacta(t, append(args, "--draft", "none")...)
	require.Equal(t, exitFine, code, errs)
	require.True(t, strings.HasPrefix(plain, prompt), plain)
	require.NotContains(t, plain, "\x1b")
	require.Regexp(t, `^12 tokens, \d+ tok/s, accept length 1\.00 \(0 of 0 drafts accepted\), length\n$`, errs)
	for _, extra := range [][]string{{"--draft", "mtp", "--k", "4"}, {"--draft", "ngram"}, {"--draft", "mtp", "--k", "0"}, {"--draft", "mtp", "--threads", "1"}, {"--kernels", "go"}} {
		require.Equal(t, plain, fine(t, append(args, extra...)...), "%v", extra)
	}
}

func TestGenerateJSON(t *testing.T) {
	args := []string{"generate", "--max-tokens", "12", prompt}
	v := object(t, append(args, "--draft", "mtp", "--k", "2")...)
	require.Equal(t, []string{
		"accept_length", "accepted", "drafter", "finish", "k", "lossy", "prompt_tokens", "proposed", "rule", "simulated", "steps", "text", "tok_s", "tokens",
	}, keys(v))
	require.Equal(t, []any{"mtp", 2.0, "greedy", "length", false}, []any{v["drafter"], v["k"], v["rule"], v["finish"], v["simulated"]})
	tokens := v["tokens"].([]any)
	require.Len(t, tokens, 12)
	kinds := map[string]int{}
	for _, k := range tokens {
		require.Equal(t, []string{"id", "kind"}, keys(k))
		kinds[k.(map[string]any)["kind"].(string)]++
	}
	require.Positive(t, kinds["accepted"])
	require.LessOrEqual(t, float64(kinds["accepted"]), v["accepted"].(float64)) // the last may be cut by the length
	require.Equal(t, 12, kinds["accepted"]+kinds["correction"]+kinds["bonus"]+kinds["sampled"])
	plain := object(t, append(args, "--draft", "none")...)
	require.Equal(t, plain["text"], v["text"])
	require.Equal(t, 0.0, plain["proposed"])
	require.Equal(t, prompt+v["text"].(string)+"\n", fine(t, args...))
}

// At temperature the coupled rule gives plain decoding's tokens, and the seed
// decides them.
func TestGenerateCoupled(t *testing.T) {
	args := []string{"generate", "--max-tokens", "16", "--rule", "coupled", "--temperature", "1", prompt}
	text := func(extra ...string) any { return object(t, append(args, extra...)...)["text"] }
	plain := text("--draft", "none", "--seed", "7")
	require.Equal(t, plain, text("--draft", "mtp", "--seed", "7"))
	require.Equal(t, plain, text("--draft", "ngram", "--seed", "7"))
	require.NotEqual(t, plain, text("--draft", "none", "--seed", "8"))
	require.NotEmpty(t, fine(t, "generate", "--max-tokens", "4", "--rule", "rejection", "--temperature", "1", prompt))
}

// A lossy rule is named in the result and beside the text.
func TestGenerateLossy(t *testing.T) {
	args := []string{"generate", "--max-tokens", "12", "--rule", "threshold:single=0.05", prompt}
	v := object(t, args...)
	require.Equal(t, []any{true, "threshold:single=0.05"}, []any{v["lossy"], v["rule"]})
	_, _, errs := exacta(t, args...)
	require.Regexp(t, `, length; LOSSY rule threshold:single=0\.05: the text is not the model's own\n$`, errs)
	require.Equal(t, object(t, "generate", "--max-tokens", "12", prompt)["text"], object(t, "generate", "--max-tokens", "12", "--rule", "threshold:single=1", prompt)["text"])
}

var escapes = regexp.MustCompile("\x1b\\[[0-9]*m")

// Colours say how tokens came, and take nothing from the text.
func TestGenerateColour(t *testing.T) {
	args := []string{"generate", "--max-tokens", "24", "--draft", "mtp", "--k", "3", prompt}
	text := fine(t, append(args, "--color", "never")...)
	require.Equal(t, text, fine(t, args...)) // not a terminal
	coloured := fine(t, append(args, "--color", "always")...)
	require.Contains(t, coloured, "\x1b[32m")
	require.Equal(t, text, escapes.ReplaceAllString(coloured, ""))
	for _, line := range strings.Split(coloured, "\n") {
		open := strings.LastIndex(line, "\x1b[3")
		require.LessOrEqual(t, open, strings.LastIndex(line, "\x1b[0m"), "a colour runs over the end of %q", line)
	}
	require.NotContains(t, fine(t, append(args, "--color", "always", "--json")...), `\u001b`)
}
