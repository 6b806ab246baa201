package draft

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

func TestTreeValidate(t *testing.T) {
	require.NoError(t, (&MTPTree{Width: 3, Depth: 5}).Validate())
	require.ErrorContains(t, (&MTPTree{Width: 0, Depth: 5}).Validate(), "width is 0; it must be 1..32")
	require.ErrorContains(t, (&Eagle3Tree{Width: 3, Depth: 64}).Validate(), "depth is 64; it must be 1..63")
	for _, s := range []Strategy{&MTPTree{}, &Eagle3Tree{}} {
		_, err := s.Provision(Env{})
		require.ErrorContains(t, err, "-tree: width is 0")
	}
}

// A tree grows by the likeliest drafts, and the likeliest of all are proposed,
// parents before children.
func TestPlant(t *testing.T) {
	ask := &engine.Ask{K: 4}
	p := plant{ask: ask}
	add := func(parent, depth int, token int32, prob float64) {
		p.nodes = append(p.nodes, node{parent: parent, depth: depth, token: token, score: math.Log(prob), grown: -1})
	}
	add(-1, 1, 7, 0.6)
	add(-1, 1, 8, 0.3)
	add(-1, 1, 9, 0.05)
	p.choose(2)
	require.Equal(t, []int{0, 1}, p.grown)
	add(0, 2, 17, 0.5)
	add(0, 2, 18, 0.06)
	add(1, 2, 19, 0.29)
	p.choose(2)
	require.Equal(t, []int{0, 1, 3, 5}, p.grown, "of the last level alone")
	require.Equal(t, 2, p.fresh)
	add(3, 3, 27, 0.49)
	p.choose(2)
	require.Equal(t, 4, p.fresh)
	require.Len(t, p.grown, 4, "no more than K in all")
	d := &tree{plants: []plant{p}}
	require.NoError(t, d.harvest())
	require.Equal(t, []int32{7, 8, 17, 27}, ask.Draft.Tokens)
	require.Equal(t, []int32{-1, -1, 0, 2}, ask.Draft.Parents)
	require.InDelta(t, 0.6+0.3+0.5+0.49, ask.Draft.Expect, 1e-6)
}
