package verify

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// Shapes of trees, by parent.
var (
	twins   = []int32{-1, -1}
	comb    = []int32{-1, -1, 0, 0, 2, 2} // two alternatives at each depth, to depth 3
	bushy   = []int32{-1, -1, 0, 0, 1, 1}
	fan     = []int32{-1, -1, -1, 1, 3}
	hook    = []int32{-1, -1, 0, 2}
	single  = []int32{-1, 0, 1} // a chain, said as a tree
	untidy  = []int32{-1, 0, -1, 2, 0, 3}
	shapes  = map[string][]int32{"twins": twins, "comb": comb, "bushy": bushy, "fan": fan, "hook": hook, "single": single, "untidy": untidy}
	uniform = sample.Params{Temperature: 1}
)

// drawing is how the drafter of a tree chooses siblings.
type drawing int

const (
	certain            drawing = iota // any tokens; the rule is told nothing
	withReplacement                   // each drawn from q, as in SpecInfer
	withoutReplacement                // each drawn from q without those before it, as in EAGLE
	pretended                         // as that, but the rule is told q: wrong
	likeliest                         // the likeliest tokens, as dynamic trees have them
)

// sibling returns the distribution that draft i of d is drawn from, unnormalised,
// and the one that the rule is told.
func sibling(d *engine.Draft, i int, q []float32, how drawing) (drawn, told []float32) {
	if how == certain || how == withReplacement {
		return q, q
	}
	drawn = slices.Clone(q)
	if how == likeliest {
		for j := d.First(d.Parent(i) + 1); j >= 0 && j < i; j = d.Sibling(j) {
			drawn[d.Tokens[j]] = 0
		}
		top := slices.Index(drawn, slices.Max(drawn))
		clear(drawn)
		drawn[top] = 1
		return drawn, drawn
	}
	for j := d.First(d.Parent(i) + 1); j >= 0 && j < i; j = d.Sibling(j) {
		drawn[d.Tokens[j]] = 0
	}
	if how == pretended {
		return drawn, q
	}
	return drawn, drawn
}

// fixed grows a tree of a shape.
func fixed(shape []int32) func(d *engine.Draft) int32 {
	return func(d *engine.Draft) int32 {
		if i := len(d.Tokens); i < len(shape) {
			return shape[i]
		}
		return -2
	}
}

// treeVariation is variation for drafts of a shape.
func treeVariation(t *testing.T, r noisy, c enumerated, shape []int32, how drawing, seed uint64) float64 {
	return grownVariation(t, r, c, fixed(shape), how, seed)
}

// grownVariation is variation for trees that grow: grow says which draft the next
// one follows, or -2 that the tree is whole.
func grownVariation(t *testing.T, r noisy, c enumerated, grow func(d *engine.Draft) int32, how drawing, seed uint64) float64 {
	target := &toy{vocab: c.vocab, salt: seed, scale: c.scale}
	drafter := &toy{vocab: c.vocab, salt: seed + 1000, scale: c.scale, like: target, noise: c.noise}
	prompt := []int32{1, 0, 1}
	s := sample.New(c.params, prompt)
	constrain(t, s, c.vocab)
	got := map[string]float64{}
	var extend func(tokens []int32, weight float64)
	extend = func(tokens []int32, weight float64) {
		if len(tokens) == c.depth+1 {
			got[fmt.Sprint(tokens)] += weight
			return
		}
		for i, p := range target.dist(s, prompt, tokens) {
			if p > 0 {
				extend(append(tokens[:len(tokens):len(tokens)], int32(i)), weight*p)
			}
		}
	}
	d := engine.Draft{}
	var drafts func(weight float64)
	drafts = func(weight float64) {
		i := len(d.Tokens)
		parent := grow(&d)
		if parent < -1 {
			full := engine.Draft{Tokens: slices.Clone(d.Tokens), Parents: slices.Clone(d.Parents)}
			if how != certain && how != likeliest {
				full.Probs = slices.Clone(d.Probs)
			}
			v := target.verification(s, prompt, full)
			v.Logits = cached(v.Logits, i+1)
			integrate(t, r, v, weight, extend)
			return
		}
		after := before(&d, int(parent)+1)
		d.Parents = append(d.Parents[:i], parent)
		q, err := s.ProcessTo(make([]float32, c.vocab), drafter.logits(join(prompt, after)), after)
		require.NoError(t, err)
		drawn, told := sibling(&d, i, q, how)
		sum := mass(drawn)
		for x, p := range drawn {
			if p > 0 {
				d.Tokens, d.Probs, d.Parents = append(d.Tokens[:i], int32(x)), append(d.Probs[:i], told), append(d.Parents[:i], parent)
				drafts(weight * float64(p) / sum)
			}
		}
		d.Tokens, d.Probs, d.Parents = d.Tokens[:i], d.Probs[:i], d.Parents[:i]
	}
	drafts(1)
	rule := got
	got = map[string]float64{}
	extend(nil, 1)
	return distance(got, rule)
}

// The output of the production rules over trees, over all drafts and all noise, is
// distributed as plain sampling.
func TestTreesEnumerated(t *testing.T) {
	penal := sample.Params{Temperature: 0.8, PresencePenalty: 0.6, RepetitionPenalty: 1.3}
	type trial struct {
		shape string
		how   drawing
		c     enumerated
	}
	trials := []trial{
		{"twins", withReplacement, enumerated{vocab: 5, depth: 2, params: uniform, noise: 1, scale: 1}},
		{"twins", withoutReplacement, enumerated{vocab: 8, depth: 1, params: uniform, noise: 2, scale: 1.5}},
		{"comb", withoutReplacement, enumerated{vocab: 3, depth: 3, params: uniform, noise: 1, scale: 1}},
		{"bushy", withReplacement, enumerated{vocab: 3, depth: 2, params: uniform, noise: 1, scale: 1}},
		{"bushy", withoutReplacement, enumerated{vocab: 3, depth: 2, params: penal, noise: 1, scale: 1}},
		{"fan", withoutReplacement, enumerated{vocab: 4, depth: 3, params: uniform, noise: 3, scale: 1}},
		{"fan", certain, enumerated{vocab: 4, depth: 3, params: sample.Params{Temperature: 1, TopK: 3}, noise: 1, scale: 1}},
		{"single", withReplacement, enumerated{vocab: 4, depth: 3, params: uniform, noise: 1, scale: 1}},
		{"untidy", withReplacement, enumerated{vocab: 3, depth: 3, params: uniform, noise: 1, scale: 1}},
		{"comb", certain, enumerated{vocab: 3, depth: 3, params: penal, noise: 1, scale: 1}},
		{"comb", likeliest, enumerated{vocab: 8, depth: 3, params: uniform, noise: 1, scale: 1}},
		{"untidy", likeliest, enumerated{vocab: 8, depth: 3, params: penal, noise: 1, scale: 1}},
		{"hook", withoutReplacement, enumerated{vocab: 5, depth: 3, params: uniform, noise: 2, scale: 1.5}},
	}
	if os.Getenv("EXACTA_SOAK") == "1" {
		trials = append(trials,
			trial{"hook", withoutReplacement, enumerated{vocab: 8, depth: 3, params: uniform, noise: 1, scale: 1}},
			trial{"hook", withReplacement, enumerated{vocab: 8, depth: 3, params: uniform, noise: 2, scale: 1.5}})
	}
	for i, c := range trials {
		t.Run(fmt.Sprintf("%s %d", c.shape, c.how), func(t *testing.T) {
			for name, rule := range map[string]noisy{"rejection": newRejection(), "block": newBlock()} {
				tv := treeVariation(t, rule, c.c, shapes[c.shape], c.how, uint64(i))
				t.Logf("%s: total variation %.2g", name, tv)
				require.Less(t, tv, 1e-12, name)
			}
		})
	}
}

// The same test sees rules that forget what siblings have taken, and drafters that
// hide how they drew.
func TestTreeEnumerationCatches(t *testing.T) {
	c := enumerated{vocab: 4, depth: 1, params: uniform, noise: 1, scale: 1}
	r := newRejection()
	r.residual = func([]float64, []float32, int32) {}
	require.Greater(t, treeVariation(t, r, c, twins, withReplacement, 1), 1e-5)
	r.residual = func(w []float64, q []float32, draft int32) { w[draft] = 0 }
	require.Greater(t, treeVariation(t, r, c, twins, withoutReplacement, 1), 1e-5)
	require.Greater(t, treeVariation(t, newRejection(), c, twins, pretended, 1), 1e-5)
}

// The exact rules give the tokens of plain decoding, whatever the trees.
func TestTreesGiveTokensOfPlainDecoding(t *testing.T) {
	const n = 40
	r := rand.New(rand.NewPCG(3, 4))
	accepted, off := map[string]int{}, 0
	for trial := range 60 {
		m := &toy{vocab: 2 + r.IntN(20), salt: uint64(trial), scale: 2}
		prompt := []int32{0, 1, 1}
		p := sample.Params{Seed: r.Uint64()}
		if trial%2 == 0 {
			p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = 0.3, 0.1, 1.2
		}
		if trial%3 == 0 {
			p.Temperature, p.TopP = 0.9, 0.95
		}
		for _, name := range Names() {
			rule, err := New(name)
			require.NoError(t, err)
			if !rule.Exact(p) {
				continue
			}
			plain, _ := speak(t, rule, m, p, prompt, n, func([]int32) []int32 { return nil })
			grow := func(history []int32) engine.Draft {
				var d engine.Draft
				d.Parents = []int32{}
				for i := range r.IntN(12) {
					parent := int32(r.IntN(i+1)) - 1
					at := len(history) - len(prompt) + len(before(&d, int(parent)+1))
					id := int32(r.IntN(m.vocab))
					if at < n && r.IntN(2) == 0 {
						id = plain[at]
					}
					d.Tokens, d.Parents = append(d.Tokens, id), append(d.Parents, parent)
				}
				return d
			}
			got, hits := speakTrees(t, rule, m, p, prompt, n, grow)
			require.Equal(t, plain, got[:n], "%s %+v", name, p)
			accepted[name] += hits
			off++
		}
	}
	for _, name := range lossless() {
		require.Greater(t, accepted[name], 200, name)
	}
}
