package draft

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// Texts that were drafted as drawn trees, by the real drafter with its real noise,
// are distributed as plain sampling under the rules for trees; and they are not,
// which this sees, where draft noise is acceptance's, and where drafts are picked
// by how they turned out.
func TestDrawnTreesChiSquare(t *testing.T) {
	n := manyTexts(12_000)
	m := four(t)
	for _, c := range []struct {
		strategy Strategy
		rule     string
	}{
		{&MTPTree{Width: 3, Depth: 3, Sample: true}, "rejection"},
		{&MTPTree{Width: 2, Depth: 3, Sample: true}, "block"},
		{&Eagle3Tree{Head: "random", Width: 2, Depth: 3, Sample: true}, "rejection"},
	} {
		stat, freedom, accepted, _ := chiSquare(t, m, c.strategy, 7, c.rule, sample.Draft, n)
		t.Logf("%T, %s: chi-square %.1f at %d degrees of freedom, bound %.1f; %d drafts accepted", c.strategy, c.rule, stat, freedom, quantile(freedom), accepted)
		require.Less(t, stat, quantile(freedom), "%T %s", c.strategy, c.rule)
		require.Greater(t, accepted, n/2)
	}
	rejection, err := verify.New("rejection")
	require.NoError(t, err)
	s := &MTPTree{Width: 3, Depth: 3, Sample: true}
	for name, broken := range map[string]struct {
		purpose sample.Purpose
		rule    engine.Verifier
	}{
		"noise of acceptance": {sample.Verify, rejection},
		"picked by luck":      {sample.Draft, lucky{rejection}},
	} {
		stat, freedom, _, _ := chiSquareOf(t, m, s, 7, broken.rule, broken.purpose, 12_000)
		t.Logf("%s: chi-square %.1f, bound %.1f", name, stat, quantile(freedom))
		require.Greater(t, stat, quantile(freedom), name)
	}
}

// lucky is a rule that sees the likelier one of two siblings alone, as if it had been
// drawn: what becomes of drafts that are picked by how they turned out.
type lucky struct{ engine.Verifier }

func (l lucky) Verify(v *engine.Verification) (engine.Verdict, error) {
	d, best := &v.Draft, -1
	for i := d.First(0); i >= 0; i = d.Sibling(i) {
		if q := d.Probs[d.First(0)]; best < 0 || q[d.Tokens[i]] > q[d.Tokens[best]] {
			best = i
		}
	}
	if best < 0 || d.Sibling(d.First(0)) < 0 {
		return l.Verifier.Verify(v)
	}
	w := *v
	w.Draft = engine.Draft{Tokens: []int32{d.Tokens[best]}, Probs: [][]float32{d.Probs[d.First(0)]}}
	w.Argmax = []int32{v.Argmax[0], v.Argmax[best+1]}
	w.Logits = func(row int) []float32 { return v.Logits(row * (best + 1)) }
	verdict, err := l.Verifier.Verify(&w)
	if verdict.Accepted == 1 {
		verdict.Path = []int32{int32(best)}
	}
	return verdict, err
}

// watched keeps the drafts that a rule sees.
type watched struct {
	engine.Verifier
	t     *testing.T
	noise bool // whether drafters may draw with the target's
	seen  map[string][]engine.Draft
}

func (w watched) TargetNoise() bool { return w.noise }

func (w watched) Verify(v *engine.Verification) (engine.Verdict, error) {
	if d := &v.Draft; v.Seq != nil && len(d.Tokens) > 0 {
		for i := range d.Tokens {
			require.Equal(w.t, i, d.Child(d.Parent(i)+1, d.Tokens[i]), "siblings differ: %v", d)
		}
		id := v.Seq.Request().ID
		keep := engine.Draft{Tokens: slices.Clone(d.Tokens), Parents: slices.Clone(d.Parents)}
		for _, q := range d.Probs {
			keep.Probs = append(keep.Probs, slices.Clone(q))
		}
		w.seen[id] = append(w.seen[id], keep)
	}
	return w.Verifier.Verify(v)
}

// Drawn trees are of one shape for each k, depend on the seed and on nothing else,
// and under the coupled rule guess with the target's noise, better than by chance.
func TestDrawnTrees(t *testing.T) {
	m := four(t)
	sampled := func(rule string, noise bool, params sample.Params, batch int) (map[string][]engine.Draft, int) {
		inner, err := verify.New(rule)
		require.NoError(t, err)
		d, err := (&MTPTree{Width: 3, Depth: 3, Sample: true}).Provision(Env{Backend: m.Backend(), Model: m, Vocab: 4})
		require.NoError(t, err)
		w, accepted := watched{inner, t, noise, map[string][]engine.Draft{}}, 0
		rec := engine.RecorderFunc(func(r *engine.Record) error {
			accepted += int(r.Accepted)
			return nil
		})
		run(t, m, w, d, batch, rec, func(submit func(engine.Request)) {
			for i := range 40 {
				p := params
				p.Seed = uint64(i)
				submit(engine.Request{ID: string(rune('A' + i)), Prompt: chiPrompt, MaxNew: 12, Params: p, K: 5})
			}
		})
		return w.seen, accepted
	}
	p := sample.Params{Temperature: 1.2}
	alone, _ := sampled("rejection", false, p, 1)
	together, _ := sampled("rejection", false, p, 32)
	require.Equal(t, alone, together, "drafts and distributions depend on the request alone")
	different := 0
	for _, list := range alone {
		d := list[0]
		require.Equal(t, []int32{-1, -1, 0, 0, 2}, d.Parents)
		require.Len(t, d.Probs, 5)
		require.Zero(t, d.Probs[1][d.Tokens[0]], "the second of two siblings has the distribution without the first")
		if d.Tokens[0] != alone["A"][0].Tokens[0] {
			different++
		}
	}
	require.Positive(t, different)
	// Where the request samples from one token, a tree has no siblings; at
	// temperature 0 it is the dynamic one.
	narrow, _ := sampled("rejection", false, sample.Params{Temperature: 1.2, TopK: 1}, 8)
	require.Nil(t, narrow["A"][0].Parents)
	require.Len(t, narrow["A"][0].Tokens, 3)
	greedy, _ := sampled("rejection", false, sample.Params{}, 8)
	require.Nil(t, greedy["A"][0].Probs)
	require.Len(t, greedy["A"][0].Tokens, 5)
	coupled, with := sampled("coupled", true, p, 8)
	require.Nil(t, coupled["A"][0].Probs)
	_, without := sampled("coupled", false, p, 8)
	require.Greater(t, with, without)
}

// Shapes have at most width siblings and depth levels, and are what one of more
// drafts begins with.
func TestDrawnShapes(t *testing.T) {
	var trees drawnTrees
	c := treeShape{width: 2, depth: 4}
	big := trees.shape(20, c)
	require.Len(t, big, 20)
	for i, n := range big {
		require.Less(t, n.rank, 2)
		require.Less(t, n.depth, 4)
		require.Equal(t, big[:i+1], trees.shape(i+1, c))
	}
	require.Len(t, new(drawnTrees).shape(9, treeShape{width: 1, depth: 4}), 4)
}
