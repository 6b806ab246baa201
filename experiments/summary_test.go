package experiments

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An output that is not exact is in the verdict, in the table and below it; one
// of which nothing is promised is neither.
func TestSummaryVerdict(t *testing.T) {
	yes, no := true, false
	sum := Summary{Runs: []PointResult{
		{Point: Point{Strategy: -1, Drafter: "none", Rule: "greedy", Concurrency: 1}, Exact: &yes},
		{Point: Point{Drafter: "ngram", K: 2, Rule: "rejection", Concurrency: 1}},
		{Point: Point{Drafter: "mtp", K: 2, Rule: "greedy", Concurrency: 4}, Simulated: true, AcceptanceByPosition: []float64{0.5, 0.25}},
	}}
	require.True(t, sum.AllExact())
	sum.Runs = append(sum.Runs, PointResult{Point: Point{Strategy: 1, Drafter: "mtp", K: 2, Rule: "greedy", Concurrency: 4}, Exact: &no, FirstDiff: "request x: output 3"})
	require.False(t, sum.AllExact())
	var out bytes.Buffer
	require.NoError(t, sum.Table(&out))
	lines := strings.Split(out.String(), "\n")
	for i, end := range []string{"exact", "yes", "n/a", "n/a", "NO"} {
		require.True(t, strings.HasSuffix(lines[i], " "+end), "%q", lines[i])
	}
	require.Regexp(t, `^mtp \(simulated\) +2 +greedy +4 `, lines[3])
	require.Contains(t, lines[3], "  0.50 0.25  ")
	require.Contains(t, out.String(), "1-mtp.k2.greedy.c4: request x: output 3\n")

	text, err := json.Marshal(sum.Runs[1])
	require.NoError(t, err)
	require.Contains(t, string(text), `"exact":null`)
}
