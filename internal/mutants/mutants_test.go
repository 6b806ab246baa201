package mutants_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/internal/mutants"
)

// A handful of mutants that must be caught, one of each way to be wrong; make
// mutants tries many.
func TestHandful(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	var picked []mutants.Mutant
	for _, want := range []struct{ file, kind, change, becomes string }{
		{"verify/walk.go", "comparison", `"<" becomes "<="`, ""},
		{"verify/residual.go", "statement", `"w[draft] = 0"`, ""},
		{"engine/tables.go", "sign", `"+" becomes "-"`, "append(t.logit, int32(off-i))"},
		{"engine/judge.go", "bound", `"room" becomes "room-1"`, ""},
	} {
		list, err := mutants.Mutate(root, want.file)
		require.NoError(t, err)
		require.NotEmpty(t, list)
		n := len(picked)
		for _, m := range list {
			if m.Kind == want.kind && strings.Contains(m.Change, want.change) && strings.Contains(string(m.Source), want.becomes) {
				picked = append(picked, m)
				break
			}
		}
		require.Len(t, picked, n+1, "%v", want)
	}
	results, err := mutants.Run(t.Context(), filepath.Join(root, "engine", "embedded"), mutants.Options{Root: root, Mutants: picked})
	require.NoError(t, err)
	for _, r := range results {
		t.Logf("%v: %s by %s: %.200s", r.Mutant, r.Outcome, r.By, r.Evidence)
		require.Equal(t, mutants.Caught, r.Outcome, "%v", r.Mutant)
	}
	table := mutants.Count(results)
	require.True(t, table.Holds())
	require.Equal(t, len(picked), table.Changing())
}

// There are mutants of every file and kind, all of them changes.
func TestMutate(t *testing.T) {
	root := filepath.Join("..", "..")
	kinds := map[string]int{}
	var all []mutants.Mutant
	for _, f := range mutants.Files() {
		list, err := mutants.Mutate(root, f)
		require.NoError(t, err)
		require.NotEmpty(t, list, f)
		for _, m := range list {
			kinds[m.Kind]++
			require.Positive(t, m.Line)
			require.NotEmpty(t, m.Source)
		}
		all = append(all, list...)
	}
	require.Greater(t, len(all), 200)
	for _, k := range []string{"comparison", "sign", "connective", "constant", "condition", "bound", "statement", "arguments", "extremum"} {
		require.Positive(t, kinds[k], k)
	}
	require.Len(t, mutants.Spread(all, 50, 0), 50)
	_, err := mutants.Mutate(root, "no/such.go")
	require.Error(t, err)
}
