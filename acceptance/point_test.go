package acceptance

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParsePoint(t *testing.T) {
	for name, want := range map[string]Point{
		"plain.greedy.c4.r1":         {Name: "plain.greedy.c4", Round: 1, Plain: true, Rule: "greedy", Concurrency: 4},
		"plain.greedy.c4":            {Name: "plain.greedy.c4", Round: -1, Plain: true, Rule: "greedy", Concurrency: 4},
		"0-mtp.k3.coupled.c16.r10":   {Name: "0-mtp.k3.coupled.c16", Round: 10, Rule: "coupled", Concurrency: 16},
		"2-a.r7.k3.rejection.c1.r0":  {Name: "2-a.r7.k3.rejection.c1", Round: 0, Rule: "rejection", Concurrency: 1},
		"reference-0":                {Name: "reference-0", Round: -1, Reference: true},
		"chatcmpl-77":                {Name: "chatcmpl-77", Round: -1},
		"x.r":                        {Name: "x.r", Round: -1},
		"x.r-1":                      {Name: "x.r-1", Round: -1},
		"x.r99999999999999999999999": {Name: "x.r99999999999999999999999", Round: -1},
		"":                           {Name: "", Round: -1},
	} {
		require.Equal(t, want, ParsePoint(name), name)
	}
	p := ParsePoint("a.c1.r2")
	require.True(t, p.Is("a.c1"))
	require.True(t, p.Is("a.c1.r2"))
	require.False(t, p.Is("a.c1.r"))
	require.False(t, p.Is("a"))
	require.True(t, ParsePoint("a").Is("a"))
}

func TestSplitRequest(t *testing.T) {
	for id, want := range map[string][2]string{"p.r0/HumanEval/7": {"p.r0", "HumanEval/7"}, "chat-1": {"chat-1", "chat-1"}, "p/": {"p", ""}} {
		point, prompt := SplitRequest(id)
		require.Equal(t, want, [2]string{point, prompt}, id)
	}
}

// Groups by class, prompt and pooled point, each with the rounds that it pools.
func TestGroupKeys(t *testing.T) {
	prompts := Prompts{"a/1": {Class: "code"}, "b": {Class: "text"}}
	class, prompt, pooled := NewGroup(ByClass(prompts)), NewGroup(ByPrompt), NewGroup(ByPooledPoint)
	for _, request := range []string{"p.c1.r0/a/1", "p.c1.r1/a/1", "p.c1.r0/b", "p.c1.r1/c", "reference-0/b", "lone"} {
		for _, g := range []*Group{class, prompt, pooled} {
			g.Add(verification(request, 0, 2, 1, 2))
		}
	}
	require.Equal(t, []string{"p.c1/code", "p.c1/text", "p.c1/unknown", "reference-0/text", "lone/unknown"}, class.Order)
	require.Equal(t, []string{"p.c1/a/1", "p.c1/b", "p.c1/c", "reference-0/b", "lone/lone"}, prompt.Order)
	require.Equal(t, []string{"p.c1", "reference-0", "lone"}, pooled.Order)
	require.Equal(t, 2, class.By["p.c1/code"].Passes())
	require.Equal(t, 1, class.By["p.c1/text"].Passes())
	require.Equal(t, 2, pooled.By["p.c1"].Passes())
	require.Equal(t, 1, pooled.By["lone"].Passes())
	require.Equal(t, 1, new(Stats).Passes())

	require.NoError(t, pooled.Mixed())
	forced := verification("p.c1.r0/b", 1, 2, 1, 2)
	forced.Simulated = true
	pooled.Add(forced)
	require.EqualError(t, pooled.Mixed(), "p.c1: acceptance was simulated in 1 of 5 verifications with drafts; simulated and real acceptance are never put into one figure")
	forced.Simulation = "length=2"
	require.Equal(t, "simulated/mtp/greedy/k4/length=2", ByStrategy(forced))
	// A step without drafts is decided by no simulation, stamped or not.
	only := NewGroup(ByPooledPoint)
	only.Add(forced)
	only.Add(verification("p.c1.r0/b", 2, 0, 0, 1))
	require.NoError(t, only.Mixed())
}

func TestReadPrompts(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadPrompts(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	long := `{"id":"b","class":"text","prompt_ids":[` + strings.Repeat("1,", 100_000) + "2]}\n"
	file("prompts.jsonl", `{"id":"a","class":"code","prompt_ids":[1,2]}`+"\n"+long+`{"id":"cut`)
	p, err := ReadPrompts(dir)
	require.NoError(t, err)
	require.Len(t, p, 2)
	require.Equal(t, "code", p["a"].Class)
	require.Equal(t, "text", p["b"].Class)
	require.NotEqual(t, p["a"].Hash, p["b"].Hash)

	file("prompts.jsonl", "{\"id\":\"a\"}\n{\"id\":\"a\"}\n")
	_, err = ReadPrompts(dir)
	require.ErrorContains(t, err, `prompts.jsonl:2: prompt "a" is there twice`)
	file("prompts.jsonl", "nonsense\n")
	_, err = ReadPrompts(dir)
	require.ErrorContains(t, err, "prompts.jsonl:1: ")

	file("outputs.jsonl", "{\"request\":\"p/a\",\"output_ids\":[1]}\n{\"request\":\"p/b\"")
	done, err := ReadFinished(dir)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"p/a": true}, done)
}

// The counts by position with their intervals are those of the rates.
func TestPositions(t *testing.T) {
	var s Stats
	for _, r := range fakeRun(4, 2, 3, 60) {
		s.Add(r)
	}
	a := s.Acceptance()
	positions := s.Positions(0.95, 1)
	require.Len(t, positions, len(a.AcceptanceByPosition))
	for i, p := range positions {
		require.Equal(t, i, p.Position)
		require.Equal(t, a.AcceptanceByPosition[i], p.Unconditional.Rate)
		require.Equal(t, a.Conditional[i], p.Conditional.Rate)
		require.Equal(t, NewShare(s.Prefix[i], s.Reached[i], 1, Quantile(0.95)), p.Unconditional)
		require.Equal(t, NewShare(s.Prefix[i], s.Tried[i], 1, Quantile(0.95)), p.Conditional)
	}
	require.Empty(t, new(Counts).Positions(0.95, 1))
}
