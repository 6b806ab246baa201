package draft

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// Drafts end before the first token whose running confidence is too low, each
// sequence's by its own.
func TestDSparkCuts(t *testing.T) {
	m := small(t, backends(t)["cpu"], true, 2)
	d, err := (&DSpark{Head: "random", MinConfidence: 0.4}).Provision(Env{Backend: m.Backend(), Model: m, Vocab: 37})
	require.NoError(t, err)
	s := d.(*dspark)
	bias := math.Log(s.head.Sure(0) / (1 - s.head.Sure(0)))
	sure := func(p float64) float32 { return float32(math.Log(p/(1-p)) - bias) }
	// By place, then by sequence.
	s.sure = []float32{sure(0.9), sure(0.39), sure(0.8), sure(0.99), sure(0.5), sure(0.99)}
	asks := []*engine.Ask{{K: 3, Draft: engine.Draft{Tokens: []int32{1, 2, 3}}}, {K: 3, Draft: engine.Draft{Tokens: []int32{4, 5, 6}}}}
	s.cut(asks)
	require.Equal(t, []int32{1, 2}, asks[0].Draft.Tokens)
	require.InDelta(t, 0.9+0.9*0.8, asks[0].Draft.Expect, 1e-4)
	require.Empty(t, asks[1].Draft.Tokens)
	require.Zero(t, asks[1].Draft.Expect)
	require.ErrorContains(t, (&DSpark{MinConfidence: 1}).Validate(), "min_confidence is 1; it must be at least 0 and below 1")
	require.ErrorContains(t, (&DSpark{MinConfidence: math.NaN()}).Validate(), "min_confidence is NaN")
	require.ErrorContains(t, (&Eagle{Width: 3}).Validate(), "depth is 0; it must be 1..63")
}
