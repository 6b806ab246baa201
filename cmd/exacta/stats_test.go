package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// tinyPoints are the points of the tiny run, without the rounds.
var tinyPoints = []string{"reference-0", "plain.greedy.c1", "0-ngram.k2.greedy.c1", "1-mtp.k2.greedy.c1"}

// field returns a key of each object of a list.
func field(list any, key string) (out []any) {
	for _, e := range list.([]any) {
		out = append(out, e.(map[string]any)[key])
	}
	return out
}

func TestStats(t *testing.T) {
	dir, out := tinyRun()
	v := object(t, "stats", dir)
	require.Equal(t, []string{"confidence", "points", "provenance", "run", "speedups"}, keys(v))
	require.Equal(t, "run", v["run"])
	require.Equal(t, []any{"reference-0", "plain.greedy.c1.r0", "0-ngram.k2.greedy.c1.r0", "1-mtp.k2.greedy.c1.r0"}, field(v["points"], "point"))
	mtp := v["points"].([]any)[3].(map[string]any)
	line := decode(t, out)["runs"].([]any)[2].(map[string]any)
	for _, key := range []string{"accept_length", "acceptance_by_position", "draft_share", "preemptions", "simulated"} {
		require.Equal(t, line[key], mtp[key], key)
	}
	require.Equal(t, line["tokens"], mtp["emitted"])
	first := mtp["positions"].([]any)[0].(map[string]any)["unconditional"].(map[string]any)
	require.Equal(t, mtp["acceptance_by_position"].([]any)[0], first["rate"])
	require.Less(t, first["low"], first["rate"])
	require.Greater(t, first["high"], first["rate"])

	speedups := v["speedups"].([]any)
	require.Equal(t, []any{"0-ngram.k2.greedy.c1", "1-mtp.k2.greedy.c1"}, field(speedups, "point"))
	require.Equal(t, line["decode_ratio"], speedups[1].(map[string]any)["measured"])

	text := fine(t, "stats", dir)
	require.Contains(t, text, "1-mtp.k2.greedy.c1.r0  ")
	require.Contains(t, text, "Wilson interval of 95 %")
	require.Regexp(t, `(?m)^1-mtp\.k2\.greedy\.c1 .*x  .*% +no +no$`, text)
}

// Every way to group has its lines, and sums to the same counts.
func TestStatsBy(t *testing.T) {
	dir, _ := tinyRun()
	total := func(list any) (n float64) {
		for _, x := range field(list, "verifications") {
			n += x.(float64)
		}
		return n
	}
	points := object(t, "stats", dir)["points"]
	for by, lines := range map[string]int{"class": 4, "prompt": 8} {
		v := object(t, "stats", dir, "--by", by)
		require.Equal(t, []string{"by", "confidence", "groups", "provenance", "run"}, keys(v))
		require.Equal(t, by, v["by"])
		require.Len(t, v["groups"], lines)
		require.Equal(t, total(points), total(v["groups"]), by)
		first := v["groups"].([]any)[0].(map[string]any)
		require.Equal(t, "reference-0", first["point"])
		require.NotEmpty(t, first[by])
		require.NotContains(t, first, "decode_tok_s", "a step's time is no class's own")
		require.Regexp(t, `(?m)^reference-0 +`+fmt.Sprint(first[by])+` `, fine(t, "stats", dir, "--by", by))
	}
	v := object(t, "stats", dir, "--by", "strategy")
	require.Equal(t, total(points), total(v["groups"]))
	require.Contains(t, field(v["groups"], "strategy"), "mtp/greedy/k2")
	require.Contains(t, fine(t, "stats", dir, "--by", "strategy"), "\nmtp/greedy/k2  ")

	v = object(t, "stats", dir, "--by", "position-depth", "--confidence", "0.5")
	require.Equal(t, []any{"0-ngram.k2.greedy.c1", "0-ngram.k2.greedy.c1", "1-mtp.k2.greedy.c1", "1-mtp.k2.greedy.c1"}, field(v["depths"], "point"))
	require.Equal(t, []any{0.0, 1.0, 0.0, 1.0}, field(v["depths"], "position"))
	require.Equal(t, 0.5, v["confidence"])
	require.Contains(t, fine(t, "stats", dir, "--by", "position-depth", "--confidence", "0.5"), "50 %")

	v = object(t, "stats", dir, "--points", "1-mtp.k2.greedy.c1")
	require.Equal(t, []any{"1-mtp.k2.greedy.c1.r0"}, field(v["points"], "point"))
	require.Contains(t, fine(t, "stats", dir, "--points", "1-mtp.k2.greedy.c1"), "no speed-up: the run has no plain point at this concurrency")
}

func TestStatsOver(t *testing.T) {
	dir, _ := tinyRun()
	for _, over := range []string{"steps", "position"} {
		v := object(t, "stats", dir, "--over", over, "--bucket", "4")
		require.Equal(t, []string{"bucket", "confidence", "over", "provenance", "run", "windows"}, keys(v))
		emitted := 0.0
		for i, w := range v["windows"].([]any) {
			w := w.(map[string]any)
			require.Equal(t, w["from"].(float64)+4, w["to"], i)
			if w["point"] == "1-mtp.k2.greedy.c1" {
				emitted += w["emitted"].(float64)
			}
		}
		require.Equal(t, 16.0-2, emitted, "all but the tokens of the prefills")
		require.Contains(t, fine(t, "stats", dir, "--over", over, "--bucket", "4"), "\n1-mtp.k2.greedy.c1    4-7  ")
	}
	bad(t, []string{"stats", dir, "--over", "nowhere"}, `--over "nowhere"; use steps or position`)
}

// otherTokens changes the tokens of a run's first prompt.
func otherTokens(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "prompts.jsonl")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	changed := regexp.MustCompile(`"prompt_ids":\[\d+`).ReplaceAllString(string(text), `"prompt_ids":[1`)
	require.NoError(t, os.WriteFile(name, []byte(changed), 0o644))
}

func TestStatsAgainst(t *testing.T) {
	dir, _ := tinyRun()
	other := copyRun(t)
	rewrite(t, other, func(_ int, r *engine.Record) bool {
		if strings.HasPrefix(r.Request, "1-mtp") {
			r.Accepted = 0
		}
		return !strings.HasPrefix(r.Request, "0-ngram")
	})
	v := object(t, "stats", dir, "--against", other, "--resamples", "500", "--seed", "7")
	require.Equal(t, []string{"against", "comparisons", "only_in_against", "only_in_run", "run"}, keys(v))
	require.Equal(t, []any{"0-ngram.k2.greedy.c1"}, v["only_in_run"])
	require.Equal(t, []any{"plain.greedy.c1", "1-mtp.k2.greedy.c1"}, field(v["comparisons"], "a"))
	c := v["comparisons"].([]any)[1].(map[string]any)
	require.Equal(t, 500.0, c["resamples"])
	require.Equal(t, 7.0, c["seed"])
	require.Equal(t, 2.0, c["prompts"])
	require.Contains(t, c["note"], "too few")
	length := c["figures"].([]any)[0].(map[string]any)
	require.Equal(t, "accept_length", length["figure"])
	require.Equal(t, 1.0, length["value_b"])
	require.Equal(t, length["value_a"].(float64)-1, length["difference"])
	require.Positive(t, length["low"])

	text := fine(t, "stats", dir, "--against", other, "--resamples", "500")
	require.Equal(t, text, fine(t, "stats", dir, "--against", other, "--resamples", "500"), "the same to the last digit")
	require.Contains(t, text, "500 resamples (splitmix64, seed 1)")
	require.Contains(t, text, "only in run run: 0-ngram.k2.greedy.c1")

	v = object(t, "stats", dir, "--against", dir, "--points", "1-mtp.k2.greedy.c1,plain.greedy.c1.r0", "--resamples", "100")
	require.Equal(t, []any{"plain.greedy.c1.r0"}, field(v["comparisons"], "b"))

	mtp := []string{"stats", dir, "--against", other, "--points", "1-mtp.k2.greedy.c1"}
	otherTokens(t, other)
	bad(t, mtp, "has other tokens in "+dir)
	require.NoError(t, os.Remove(filepath.Join(other, "prompts.jsonl")))
	fine(t, mtp...)
	bad(t, []string{"stats", other, "--by", "class"}, "prompts.jsonl")
	// A run that was cut short in a request.
	rewriteOutputs(t, other, "1-mtp.k2.greedy.c1.r0")
	bad(t, mtp, "the run was cut short in requests 1-mtp.k2.greedy.c1.r0/")
	// A prompt without its pair.
	rewrite(t, other, func(i int, r *engine.Record) bool { return !strings.HasSuffix(r.Request, lastPrompt(t, dir)) })
	require.NoError(t, os.Remove(filepath.Join(other, "outputs.jsonl")))
	bad(t, mtp, "prompts without a pair: 1-mtp.k2.greedy.c1 has no records of "+lastPrompt(t, dir))
}

// rewriteOutputs takes the requests of a point off outputs.jsonl.
func rewriteOutputs(t *testing.T, dir, point string) {
	t.Helper()
	var kept []string
	for line := range strings.Lines(outputsOf(t, dir)) {
		if !strings.Contains(line, `"request":"`+point+"/") {
			kept = append(kept, line)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "outputs.jsonl"), []byte(strings.Join(kept, "")), 0o644))
}

// lastPrompt is the id of the last of a run's prompts.
func lastPrompt(t *testing.T, dir string) string {
	t.Helper()
	prompts := field(object(t, "stats", dir, "--by", "prompt")["groups"], "prompt")
	return prompts[len(prompts)-1].(string)
}

// Simulated acceptance is stamped, and neither pooled nor compared with real.
func TestStatsSimulated(t *testing.T) {
	dir, _ := tinyRun()
	other := copyRun(t)
	rewrite(t, other, func(_ int, r *engine.Record) bool {
		if strings.HasPrefix(r.Request, "1-mtp") && r.Phase == engine.Decode {
			r.Simulated, r.Simulation = true, "length=1.5"
		}
		return true
	})
	text := fine(t, "stats", other)
	require.Equal(t, 2, strings.Count(text, "SIMULATED length=1.5\n"), text)
	require.Contains(t, field(object(t, "stats", other, "--by", "strategy")["groups"], "strategy"), "simulated/mtp/greedy/k2/length=1.5")
	for _, args := range [][]string{{"--by", "class"}, {"--by", "prompt"}, {"--by", "position-depth"}, {"--over", "steps"}} {
		require.Regexp(t, `1-mtp.* SIMULATED length=1\.5\n`, fine(t, append([]string{"stats", other}, args...)...))
	}
	bad(t, []string{"stats", dir, "--against", other}, "acceptance of 1-mtp.k2.greedy.c1 is real, of 1-mtp.k2.greedy.c1 simulated; they are not compared")
	require.Contains(t, fine(t, "stats", other, "--against", other, "--points", "1-mtp.k2.greedy.c1,1-mtp.k2.greedy.c1.r0"), "both simulated: a length=1.5, b length=1.5")

	once := false
	rewrite(t, other, func(_ int, r *engine.Record) bool {
		if r.Simulated && !once {
			r.Simulated, r.Simulation, once = false, "", true
		}
		return true
	})
	for _, args := range [][]string{nil, {"--by", "class"}, {"--over", "position"}, {"--against", dir}} {
		bad(t, append([]string{"stats", other}, args...), "simulated and real acceptance are never put into one figure")
	}
}

func TestStatsWrongUse(t *testing.T) {
	dir, _ := tinyRun()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--by", "colour"}, `--by "colour"; use one of point, class, prompt, strategy, position-depth`},
		{[]string{"--by", "class", "--over", "steps"}, "[by over] were all set"},
		{[]string{"--over", ""}, "--over is empty"},
		{[]string{"--against", ""}, "--against is empty"},
		{[]string{"--over", "steps", "--bucket", "0"}, "--bucket 0; it must be at least 1"},
		{[]string{"--bucket", "3"}, "--bucket goes with --over"},
		{[]string{"--seed", "3"}, "--seed goes with --against"},
		{[]string{"--resamples", "300"}, "--resamples goes with --against"},
		{[]string{"--against", dir, "--resamples", "99"}, "--resamples 99; it must be 100..1000000"},
		{[]string{"--confidence", "1"}, "--confidence 1; it must be 0.5..0.999999"},
		{[]string{"--confidence", "NaN"}, "--confidence NaN"},
		{[]string{"--points", "2-nothing.k1"}, `has no point "2-nothing.k1"; it has ` + strings.Join(tinyPoints, ", ")},
		{[]string{"--against", dir}, "--against is the run itself; name two points"},
		{[]string{"--against", dir, "--points", "1-mtp.k2.greedy.c1"}, "--against is the run itself"},
		{[]string{"--against", dir, "--points", "a,b,c"}, "--points names 3 points"},
		{[]string{"--against", dir, "--points", "plain.greedy.c1,b"}, `has no point "b"`},
		{[]string{"--against", "/no/such/run"}, "/no/such/run"},
	} {
		bad(t, append([]string{"stats", dir}, c.args...), c.want)
	}
	require.Contains(t, fine(t, "__complete", "stats", "x", "--by", ""), "position-depth\n")
}

// A run that was killed before its first verification, and one of a single record,
// have figures: none of them is NaN.
func TestStatsOfLittle(t *testing.T) {
	dir := t.TempDir()
	w, err := acceptance.NewWriter(dir, acceptance.Meta{Run: "little"})
	require.NoError(t, err)
	require.NoError(t, w.Record(&engine.Record{Request: "1-mtp.k2.greedy.c1.r0/q", Phase: engine.Prefill, PrefillTokens: 3, NextKind: engine.NextNone, TotalNs: 5}))
	require.NoError(t, w.Close())
	for _, args := range [][]string{nil, {"--by", "prompt"}, {"--by", "strategy"}, {"--by", "position-depth"}, {"--over", "steps"}, {"--over", "position"}} {
		text := fine(t, append([]string{"stats", dir}, args...)...)
		require.NotContains(t, text, "NaN")
		require.NotContains(t, fine(t, append([]string{"stats", dir, "--json"}, args...)...), "null")
	}
	other := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(other, os.DirFS(dir)))
	v := object(t, "stats", dir, "--against", other)
	require.Empty(t, v["comparisons"].([]any)[0].(map[string]any)["figures"])
}

// Every key of every form is in the help.
func TestStatsKeysAreDocumented(t *testing.T) {
	dir, _ := tinyRun()
	other := copyRun(t)
	help := fine(t, "stats", "--help")
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				visit(e)
			}
		case map[string]any:
			for key, e := range v {
				require.Regexp(t, `\b`+key+`\b`, help)
				if key != "provenance" {
					visit(e)
				}
			}
		}
	}
	for _, args := range [][]string{
		nil, {"--by", "class"}, {"--by", "prompt"}, {"--by", "strategy"}, {"--by", "position-depth"}, {"--over", "steps"},
		{"--points", "1-mtp.k2.greedy.c1"}, {"--against", other, "--resamples", "100"},
	} {
		visit(object(t, append([]string{"stats", dir}, args...)...))
	}
}
