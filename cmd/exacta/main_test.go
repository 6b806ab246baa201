package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// temporary are directories that outlive a test.
var temporary []string

// TestMain makes the test binary the program where it is called with a command, as
// tests that need a process do, and commands that start some.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		main()
	}
	code := m.Run()
	for _, dir := range temporary {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// exacta runs a command line in this process.
func exacta(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// fine runs a command line that must succeed.
func fine(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := exacta(t, args...)
	require.Equal(t, exitFine, code, "%v: %s", args, errs)
	return out
}

// object runs a command line with --json and decodes its one value.
func object(t *testing.T, args ...string) map[string]any {
	t.Helper()
	return decode(t, fine(t, append(args, "--json")...))
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func keys(v any) []string { return slices.Sorted(maps.Keys(v.(map[string]any))) }

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	return name
}

func TestHelp(t *testing.T) {
	var visit func(c *cobra.Command, path []string)
	visit = func(c *cobra.Command, path []string) {
		require.NotEmpty(t, c.Short, path)
		require.Contains(t, c.Example, "exacta", "%v has no example", path)
		out := fine(t, append(path, "--help")...)
		require.Contains(t, out, "Examples:")
		for _, sub := range c.Commands() {
			visit(sub, append(slices.Clone(path), sub.Name()))
		}
	}
	visit(newRoot(), nil)
	require.Contains(t, fine(t), "Available Commands:")
	require.Contains(t, fine(t, "bench"), "oracle")
}

func TestWrongUse(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"nonsense"}, `unknown command "nonsense"`},
		{[]string{"run", "--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"run", "a.yaml", "b.yaml"}, "at most 1 arg"},
		{[]string{"run", "/no/such.yaml"}, "/no/such.yaml"},
		{[]string{"generate"}, "accepts 1 arg"},
		{[]string{"generate", ""}, "the prompt is empty"},
		{[]string{"generate", "a\xffb"}, "UTF-8"},
		{[]string{"generate", "--max-tokens", "0", "x"}, "--max-tokens 0"},
		{[]string{"generate", "--max-tokens", "9223372036854775807", "x"}, "it must be 1..1048576"},
		{[]string{"generate", "--k", "64", "x"}, "--k 64; it must be 0..63"},
		{[]string{"generate", "--k", "-1", "x"}, "--k -1"},
		{[]string{"generate", "--draft", "psychic", "x"}, `unknown drafter "psychic"; known drafters: `},
		{[]string{"generate", "--rule", "hope", "x"}, `unknown rule "hope"; known rules: block, coupled, greedy, rejection`},
		{[]string{"generate", "--simulate", "2.6", "x"}, `--simulate: "2.6"; want length=2.6 or rates=0.9,0.5`},
		{[]string{"generate", "--simulate", "length=4.5", "x"}, "--simulate: length: 4.5 is out of range 1..4"},
		{[]string{"generate", "--k", "1", "--simulate", "rates=.5,.2", "x"}, "--simulate: rates[1]: 0.2 is of draft 2, and a step has 1"},
		{[]string{"generate", "--draft", "none", "--simulate", "length=1", "x"}, "--simulate with --draft none"},
		{[]string{"generate", "--grammar", "[a", "x"}, `grammar "[a", column 1: missing closing ]`},
		{[]string{"generate", "--grammar", "a", "--simulate", "length=1", "x"}, "simulate without a grammar"},
		{[]string{"generate", "--color", "pink", "x"}, "use auto, always or never"},
		{[]string{"generate", "--temperature", "0.5", "x"}, "rule greedy serves temperature 0"},
		{[]string{"generate", "--temperature", "-1", "--rule", "coupled", "x"}, "temperature"},
		{[]string{"generate", "--backend", "abacus", "x"}, `backend "abacus" is not known; use one of [cpu ref cuda fakedev]`},
		{[]string{"generate", "--kernels", "mmx", "x"}, "mmx"},
		{[]string{"generate", "--model", "no-such-model", "x"}, "no such file or directory"},
		{[]string{"generate", "--model", "random:nothing", "x"}, "nothing"},
		{[]string{"generate", strings.Repeat("func ", 5000)}, "tokens; the context of"},
		{[]string{"score"}, "give --ids, --ids-file or --text"},
		{[]string{"score", "--ids", "1,x"}, `"x" is not a token id`},
		{[]string{"score", "--ids", "1,999999"}, "id 999999 at position 1 is outside the vocabulary"},
		{[]string{"score", "--ids", "-1"}, "id -1 at position 0"},
		{[]string{"score", "--ids", "1", "--continue", "-2"}, "continuation of -2"},
		{[]string{"score", "--ids-file", "/no/such.json"}, "/no/such.json"},
		{[]string{"score", "--ids", "1", "--logits", "/no/such/dir/x"}, "--logits"},
		{[]string{"stats", "/no/such/run"}, "/no/such/run"},
		{[]string{"audit", "/no/such/run"}, "/no/such/run"},
		{[]string{"audit", ".", "--only", "vibes"}, `--only "vibes"`},
		{[]string{"bench", "nonsense"}, `unknown command "nonsense"`},
		{[]string{"bench", "decode", "--rounds", "0"}, "rounds is 0"},
		{[]string{"bench", "verify", "--rows", "1,65"}, "rows is 65"},
		{[]string{"bench", "verify", "--rows", "0,4"}, "rows is 0"},
		{[]string{"bench", "decode", "--context", "9"}, "context is 9"},
		{[]string{"bench", "verify", "--rows", "1,64", "--prompt", "8", "--steps", "2", "--context", "73"}, "context is 73; it must be 74.."},
		{[]string{"bench", "decode", "--model", "embedded", "--shape", "qwen3-0.6b"}, "[model shape] were all set"},
		{[]string{"bench", "decode", "--shape", "nothing"}, `unknown shape "nothing"`},
		{[]string{"bench", "decode", "--backend", "ref"}, "can't measure"},
		{[]string{"bench", "oracle", "--tokens", "0"}, "0 tokens"},
	} {
		bad(t, c.args, c.want)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, fine(t, "completion", shell), "exacta")
	}
	require.Contains(t, fine(t, "__complete", "generate", "--draft", ""), "mtp\nmtp-tree\nngram\nnone\n")
	require.Contains(t, fine(t, "__complete", "generate", "--rule", ""), "coupled\ngreedy\nrejection\nthreshold\ntypical\n")
	require.Contains(t, fine(t, "__complete", "score", "--model", ""), "embedded\nrandom:")
	require.Contains(t, fine(t, "__complete", "score", "--backend", ""), "cpu\nref\ncuda\n")
	require.Contains(t, fine(t, "__complete", "bench", "decode", "--shape", ""), "qwen3-0.6b\n")
	require.Contains(t, fine(t, "__complete", "bench", ""), "oracle")
	require.Contains(t, fine(t, "__complete", "run", ""), "yaml")
}

func TestLists(t *testing.T) {
	for _, list := range []struct{ command, member string }{{"models", "embedded"}, {"drafters", "ngram"}, {"rules", "coupled"}} {
		require.Contains(t, fine(t, list.command), list.member+" ")
		v := object(t, list.command)
		require.Equal(t, []string{list.command}, keys(v))
		var names []string
		for _, e := range v[list.command].([]any) {
			e := e.(map[string]any)
			want := []string{"name", "summary"}
			if list.command == "rules" {
				want = append([]string{"lossy"}, want...)
				require.Equal(t, strings.HasPrefix(e["summary"].(string), "LOSSY: "), e["lossy"])
			}
			if e["settings"] != nil {
				want = append(want, "settings")
			}
			require.ElementsMatch(t, want, keys(e))
			names = append(names, e["name"].(string))
		}
		require.Contains(t, names, list.member)
	}
	require.Equal(t, []string{"cores", "go", "kernel_sets", "platform", "version"}, keys(object(t, "version")))
	require.True(t, strings.HasPrefix(fine(t, "version"), "exacta "))
}

func TestBenchJSON(t *testing.T) {
	small := []string{"--rounds", "1", "--steps", "2", "--prompt", "8", "--context", "34"}
	all := []string{"backend", "decode", "draft", "heads", "machine", "memory", "model", "prefill", "rounds", "verify"}
	d := object(t, append([]string{"bench", "decode"}, small...)...)
	require.Equal(t, []string{"all", "bytes_per_s", "ratio_to_read", "tok_s"}, keys(d))
	require.Equal(t, all, keys(d["all"]))
	require.Positive(t, d["tok_s"])
	p := object(t, append([]string{"bench", "prefill"}, small...)...)
	require.Equal(t, []string{"all", "ratio_to_peak", "tok_s"}, keys(p))
	v := object(t, append([]string{"bench", "verify", "--rows", "4,20"}, small...)...)
	require.Equal(t, []string{"all", "bound", "rows"}, keys(v))
	require.Equal(t, []string{"1", "20", "4"}, keys(v["rows"]))
	for _, figures := range []any{v["rows"], v["bound"], v["all"].(map[string]any)["draft"]} {
		for key, x := range figures.(map[string]any) {
			require.Positive(t, x, key)
		}
	}
	require.Equal(t, 1.0, v["rows"].(map[string]any)["1"])
	require.Equal(t, all, keys(object(t, append([]string{"bench", "kernels", "--rows", "1,2"}, small...)...)))
	text := fine(t, append([]string{"bench", "kernels", "--rows", "1,2"}, small...)...)
	for _, line := range []string{"machine ", "decode ", "verify  ", "prefill ", "draft ", "memory "} {
		require.Contains(t, text, line)
	}
}

// bad runs a command line that must be refused, on one line of stderr.
func bad(t *testing.T, args []string, want string) {
	t.Helper()
	code, out, errs := exacta(t, args...)
	require.Equal(t, exitBad, code, "%.200q: %s", args, errs)
	require.Contains(t, errs, want, "%.200q", args)
	require.True(t, strings.HasPrefix(errs, "exacta: "), errs)
	require.Equal(t, 1, strings.Count(errs, "\n"), "%.200q: more than one line: %s", args, errs)
	require.Empty(t, out, "%.200q", args)
}
