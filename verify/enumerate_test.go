package verify

import (
	"fmt"
	"math"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// controlled is noise that the test sets: a number for each (purpose, row), and a
// list of what was asked for without having been set.
type controlled struct {
	set   map[noiseKey]float64
	asked []noiseKey
}

type noiseKey struct {
	purpose sample.Purpose
	row     int
}

func (c *controlled) noise(_ *sample.Sampler, p sample.Purpose, _, row int) float64 {
	k := noiseKey{p, row}
	u, ok := c.set[k]
	if !ok {
		c.asked = append(c.asked, k)
		return 0.5
	}
	return u
}

// noisy is a rule whose noise a test can set.
type noisy interface {
	engine.Verifier
	use(noise func(s *sample.Sampler, purpose sample.Purpose, length, row int) float64)
}

func (r *rejection) use(noise func(*sample.Sampler, sample.Purpose, int, int) float64) {
	r.noise = noise
}

func (b *block) use(noise func(*sample.Sampler, sample.Purpose, int, int) float64) { b.noise = noise }

// sight is what a run of the rule shows: its verdict and how far it went.
type sight struct {
	accepted engine.Accepted
	next     int32
	asked    int
	path     uint64
}

// integrate runs a rule over all values of its noise and calls add with the
// tokens and the probability of each verdict. The verdict is a step function of
// each uniform, so the steps are found by bisection, to the last bit, and each
// piece is followed once.
func integrate(t *testing.T, r noisy, v *engine.Verification, weight float64, add func([]int32, float64)) {
	c := &controlled{set: map[noiseKey]float64{}}
	r.use(c.noise)
	run := func() (sight, engine.Verdict) {
		c.asked = c.asked[:0]
		d, err := r.Verify(v)
		require.NoError(t, err)
		s := sight{d.Accepted, d.Next, len(c.asked), 0}
		for _, i := range d.Path {
			s.path = s.path<<8 | uint64(i+1)
		}
		return s, d
	}
	var follow func(weight float64)
	follow = func(weight float64) {
		_, d := run()
		if len(c.asked) == 0 {
			add(out(v.Draft, d), weight)
			return
		}
		key := c.asked[0]
		at := func(u float64) sight {
			c.set[key] = u
			s, _ := run()
			return s
		}
		from := 0.0
		for _, to := range append(borders(at, nil, 0x1p-53, 1-0x1p-53), 1) {
			c.set[key] = from + (to-from)/2
			follow(weight * (to - from))
			from = to
		}
		delete(c.set, key)
	}
	follow(weight)
}

// borders appends the places between lo and hi at which a step function changes.
func borders(at func(float64) sight, list []float64, lo, hi float64) []float64 {
	var split func(lo, hi float64, a, b sight)
	split = func(lo, hi float64, a, b sight) {
		mid := lo + (hi-lo)/2
		switch {
		case a == b:
		case mid <= lo || mid >= hi || hi-lo < 0x1p-56:
			list = append(list, hi)
		default:
			m := at(mid)
			split(lo, mid, a, m)
			split(mid, hi, m, b)
		}
	}
	split(lo, hi, at(lo), at(hi))
	return list
}

// enumerated is a case of the enumeration.
type enumerated struct {
	name          string
	vocab, depth  int
	params        sample.Params
	noise         float64 // of the drafter against the target
	scale         float64
	oneHot, equal bool
}

// variation returns the total variation between the output of the rule, over
// all drafts and all noise, and that of plain sampling, for the next depth+1
// tokens. Outputs of fewer tokens are continued by plain sampling.
func variation(t *testing.T, r noisy, c enumerated, seed uint64) float64 {
	target := &toy{vocab: c.vocab, salt: seed, scale: c.scale}
	drafter := &toy{vocab: c.vocab, salt: seed + 1000, scale: c.scale, like: target, noise: c.noise}
	if c.equal {
		drafter = target
	}
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
	var drafts func(d engine.Draft, weight float64)
	drafts = func(d engine.Draft, weight float64) {
		if len(d.Tokens) == c.depth {
			v := target.verification(s, prompt, d)
			v.Logits = cached(v.Logits, c.depth+1)
			integrate(t, r, v, weight, extend)
			return
		}
		q := drafter.dist(s, prompt, d.Tokens)
		q32, err := s.ProcessTo(make([]float32, c.vocab), drafter.logits(join(prompt, d.Tokens)), d.Tokens)
		require.NoError(t, err)
		for i, p := range q {
			if p == 0 {
				continue
			}
			next := engine.Draft{Tokens: append(d.Tokens[:len(d.Tokens):len(d.Tokens)], int32(i))}
			if !c.oneHot {
				next.Probs = append(d.Probs[:len(d.Probs):len(d.Probs)], q32)
			}
			drafts(next, weight*p)
		}
	}
	drafts(engine.Draft{}, 1)
	rule := got
	got = map[string]float64{}
	extend(nil, 1)
	return distance(got, rule)
}

func distance(want, got map[string]float64) float64 {
	tv := 0.0
	for k := range want {
		tv += math.Abs(want[k] - got[k])
	}
	for k, p := range got {
		if _, ok := want[k]; !ok {
			tv += p
		}
	}
	return tv / 2
}

func cached(f func(int) []float32, n int) func(int) []float32 {
	rows := make([][]float32, n)
	for i := range rows {
		rows[i] = f(i)
	}
	return func(row int) []float32 { return rows[row] }
}

// enumeration lists the cases: vocabularies up to 8, depth up to 3.
func enumeration() []enumerated {
	plain := sample.Params{Temperature: 1}
	return []enumerated{
		{name: "small", vocab: 2, depth: 1, params: plain, noise: 1, scale: 1},
		{name: "deep", vocab: 3, depth: 3, params: plain, noise: 1, scale: 1},
		{name: "large", vocab: 6, depth: 3, params: plain, noise: 1, scale: 1.5},
		{name: "largest", vocab: 8, depth: 3, params: plain, noise: 1, scale: 1.5},
		{name: "poor drafter", vocab: 4, depth: 3, params: plain, noise: 10, scale: 2},
		{name: "equal", vocab: 4, depth: 3, params: plain, equal: true, scale: 1},
		{name: "one-hot", vocab: 6, depth: 3, params: plain, oneHot: true, noise: 1, scale: 1},
		{name: "top-k", vocab: 5, depth: 3, params: sample.Params{Temperature: 0.8, TopK: 2}, noise: 1, scale: 1},
		{name: "top-p, min-p", vocab: 6, depth: 2, params: sample.Params{Temperature: 1.5, TopP: 0.8, MinP: 0.2}, noise: 1, scale: 1},
		{name: "penalties", vocab: 4, depth: 3, params: sample.Params{Temperature: 0.7, RepetitionPenalty: 1.4, PresencePenalty: 0.5, FrequencyPenalty: -0.3}, noise: 0.5, scale: 1},
		{name: "penalties, one-hot", vocab: 3, depth: 3, params: sample.Params{Temperature: 0.7, RepetitionPenalty: 0.6, FrequencyPenalty: 1}, oneHot: true, noise: 0.5, scale: 1},
		{name: "grammar", vocab: 4, depth: 3, params: sample.Params{Temperature: 1, Grammar: "(ab|b*a)*c?"}, noise: 1, scale: 1},
		{name: "grammar, bias, one-hot", vocab: 4, depth: 3, params: sample.Params{Temperature: 1, Grammar: "[ab]c?[abc]{0,4}", LogitBias: "0:1.5,3:-1", PresencePenalty: 0.5}, oneHot: true, noise: 1, scale: 1},
		{name: "sharp", vocab: 5, depth: 2, params: sample.Params{Temperature: 0.05}, noise: 1, scale: 1},
	}
}

// The output of the production rule, over all drafts and all noise, is
// distributed as plain sampling.
func TestRejectionEnumerated(t *testing.T) {
	for i, c := range enumeration() {
		t.Run(c.name, func(t *testing.T) {
			tv := variation(t, newRejection(), c, uint64(i))
			t.Logf("total variation %.2g", tv)
			require.Less(t, tv, 1e-12)
		})
	}
}

// So is that of block verification.
func TestBlockEnumerated(t *testing.T) {
	for i, c := range enumeration() {
		t.Run(c.name, func(t *testing.T) {
			tv := variation(t, newBlock(), c, uint64(i))
			t.Logf("total variation %.2g", tv)
			require.Less(t, tv, 1e-12)
		})
	}
}

// lengths is the expected number of accepted drafts of a rule, over all drafts
// and all noise.
func lengths(t *testing.T, r noisy, c enumerated, seed uint64) float64 {
	target := &toy{vocab: c.vocab, salt: seed, scale: c.scale}
	drafter := &toy{vocab: c.vocab, salt: seed + 1000, scale: c.scale, like: target, noise: c.noise}
	prompt := []int32{1, 0, 1}
	s := sample.New(c.params, prompt)
	constrain(t, s, c.vocab)
	expected := 0.0
	var drafts func(d engine.Draft, weight float64)
	drafts = func(d engine.Draft, weight float64) {
		if len(d.Tokens) == c.depth {
			v := target.verification(s, prompt, d)
			integrate(t, r, v, weight, func(out []int32, w float64) { expected += w * float64(len(out)-1) })
			return
		}
		q32, err := s.ProcessTo(make([]float32, c.vocab), drafter.logits(join(prompt, d.Tokens)), d.Tokens)
		require.NoError(t, err)
		for i, p := range drafter.dist(s, prompt, d.Tokens) {
			if p > 0 {
				drafts(engine.Draft{
					Tokens: append(d.Tokens[:len(d.Tokens):len(d.Tokens)], int32(i)),
					Probs:  append(d.Probs[:len(d.Probs):len(d.Probs)], q32),
				}, weight*p)
			}
		}
	}
	drafts(engine.Draft{}, 1)
	return expected
}

// Block verification accepts more than rejection where a draft has several
// tokens, and as much where it has one.
func TestBlockAcceptsMore(t *testing.T) {
	for i, c := range enumeration() {
		if c.oneHot || c.equal {
			continue
		}
		single := c
		single.depth = 1
		require.InDelta(t, lengths(t, newRejection(), single, uint64(i)), lengths(t, newBlock(), single, uint64(i)), 1e-12, c.name)
		if c.depth < 2 {
			continue
		}
		r, b := lengths(t, newRejection(), c, uint64(i)), lengths(t, newBlock(), c, uint64(i))
		t.Logf("%s: rejection %.4f, block %.4f", c.name, r, b)
		require.GreaterOrEqual(t, b, r-1e-12, c.name)
	}
}
