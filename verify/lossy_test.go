package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// ruleOf returns a rule by its text.
func ruleOf(t *testing.T, text string) engine.Verifier {
	t.Helper()
	r, err := New(text)
	require.NoError(t, err)
	require.Equal(t, text, r.Name())
	return r
}

// Rules with settings are named with those that are not the defaults, and say what
// is wrong with others.
func TestSettings(t *testing.T) {
	for text, name := range map[string]string{
		"typical:epsilon=0.2":                  "typical:epsilon=0.2",
		"typical:delta=1e9,epsilon=1":          "typical:epsilon=1,delta=1e+09",
		"typical:epsilon=0.09,delta=0.3":       "typical",
		"threshold:top_n=3":                    "threshold:top_n=3",
		"threshold:single=1,delta=.5":          "",
		"threshold:delta=0.5,top_n=2,single=1": "threshold:single=1,top_n=2,delta=0.5",
	} {
		r, err := New(text)
		if name == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, name, r.Name())
		again, err := New(r.Name())
		require.NoError(t, err)
		require.Equal(t, r, again)
	}
	for text, want := range map[string]string{
		"typical:":                       `rule "typical:": "" is not a setting; give KEY=VALUE, of epsilon, delta`,
		"typical:luck=1":                 `rule "typical:luck=1": "luck=1" is not a setting; give KEY=VALUE, of epsilon, delta`,
		"typical:epsilon":                `rule "typical:epsilon": epsilon is ""; want a number`,
		"typical:epsilon=x":              `rule "typical:epsilon=x": epsilon is "x"; want a number`,
		"typical:epsilon=null":           `rule "typical:epsilon=null": epsilon is "null"; want a number`,
		"typical:epsilon=0.1,epsilon=.1": `rule "typical:epsilon=0.1,epsilon=.1": epsilon is given twice`,
		"typical:epsilon=1.5":            `rule "typical:epsilon=1.5": epsilon is 1.5; it must be 0..1`,
		"typical:delta=-1":               `rule "typical:delta=-1": delta is -1; it must be 0 or more`,
		"threshold:single=0":             `rule "threshold:single=0": single is 0; it must be above 0 and at most 1 (1 is off)`,
		"threshold:top_n=1.5":            `rule "threshold:top_n=1.5": top_n is "1.5"; want a whole number`,
		"threshold:top_n=-1":             `rule "threshold:top_n=-1": top_n is -1; it must be 0 (off) or more`,
		"threshold:delta=2":              `rule "threshold:delta=2": delta is 2; it must be 0..1`,
		"greedy:x=1":                     `rule "greedy:x=1": greedy has no settings`,
	} {
		_, err := New(text)
		require.EqualError(t, err, want)
	}
}

// Nothing about a lossy rule is exact, at any temperature, simulated or not.
func TestLossy(t *testing.T) {
	for _, name := range []string{"typical", "threshold", "typical:epsilon=1,delta=1e+09", "threshold:single=1"} {
		rule := ruleOf(t, name)
		forced, err := Simulate(rule, Simulation{Length: 2}, 3)
		require.NoError(t, err)
		for _, r := range []engine.Verifier{rule, forced} {
			require.True(t, engine.Lossy(r))
			require.False(t, r.Exact(sample.Params{}))
			require.False(t, r.Exact(sample.Params{Temperature: 1}))
		}
	}
	for _, name := range lossless() {
		require.False(t, engine.Lossy(ruleOf(t, name)), name)
	}
}

// scripted are logits whose softmax at temperature 1 is p.
func scripted(p ...float64) []float32 {
	out := make([]float32, len(p))
	for i, x := range p {
		out[i] = float32(math.Log(x))
	}
	return out
}

// The bounds are those that the documentation gives.
func TestBoundsByHand(t *testing.T) {
	row := scripted(0.5, 0.3, 0.12, 0.08) // entropy 1.164: exp(-H) is 0.312
	for _, c := range []struct {
		rule  string
		draft int32
		want  bool
	}{
		{"typical", 2, true},                               // 0.0937 bounds, not 0.09
		{"typical", 3, false},                              //
		{"typical:epsilon=0.4,delta=1", 1, false},          // 0.312
		{"typical:epsilon=0.4,delta=0.9", 1, true},         // 0.281
		{"typical:epsilon=0.31,delta=1e+09", 1, false},     // epsilon
		{"typical:epsilon=0.29,delta=1e+09", 1, true},      //
		{"threshold:single=0.29", 1, true},                 //
		{"threshold:single=0.31", 1, false},                //
		{"threshold:single=1,top_n=2", 1, true},            //
		{"threshold:single=1,top_n=2", 2, false},           //
		{"threshold:single=1,top_n=4,delta=0.3", 1, true},  // 0.2 below the first
		{"threshold:single=1,top_n=4,delta=0.3", 2, false}, // 0.38 below
	} {
		// Plain decoding's own token would stand anyway, so none that draws it.
		p := sample.Params{Temperature: 1}
		s := sample.New(p, nil)
		for own := c.draft; own == c.draft; p.Seed++ {
			s = sample.New(p, nil)
			var err error
			own, err = s.CoupledSample(row, nil, 6)
			require.NoError(t, err)
		}
		v := &engine.Verification{
			Draft: engine.Draft{Tokens: []int32{c.draft}}, Position: 5, Argmax: []int32{0, 0}, Sampler: s,
			Logits: func(int) []float32 { return row },
		}
		got, err := ruleOf(t, c.rule).Verify(v)
		require.NoError(t, err)
		require.Equal(t, c.want, got.Accepted == 1, "%s %d", c.rule, c.draft)
	}
}

// At temperature 0 a threshold is one of the distribution at temperature 1.
func TestThresholdAtTemperature0(t *testing.T) {
	row := scripted(0.5, 0.3, 0.12, 0.08)
	v := &engine.Verification{
		Draft:    engine.Draft{Tokens: []int32{2, 1, 0}, Parents: []int32{-1, -1, 1}},
		Position: 5, Argmax: []int32{0, 0, 0, 0}, Sampler: sample.New(sample.Params{}, nil), Logits: func(int) []float32 { return row },
	}
	got, err := ruleOf(t, "threshold:single=0.2").Verify(v)
	require.NoError(t, err)
	require.Equal(t, engine.Verdict{Accepted: 2, Path: []int32{1, 2}, Next: 0, Kind: engine.NextBonus, Targets: []int32{0, 0, 0}}, got)
	v.Draft.Tokens[0] = 0 // the argmax goes before what is likely enough
	got, err = ruleOf(t, "threshold:single=0.2").Verify(v)
	require.NoError(t, err)
	require.Equal(t, engine.Verdict{Accepted: 1, Path: []int32{0}, Next: 0, Kind: engine.NextBonus, Targets: []int32{0, 0}}, got)
}

// Typical acceptance takes the longest path, and of equally long ones the likeliest.
func TestTypicalPath(t *testing.T) {
	rows := [][]float32{scripted(0.4, 0.35, 0.2, 0.05), scripted(0.4, 0.3, 0.2, 0.1), scripted(0.1, 0.2, 0.3, 0.4), scripted(1, 1, 1, 1), scripted(1, 1, 1, 1), scripted(1, 1, 1, 1)}
	s := sample.New(sample.Params{Temperature: 1, Seed: 4}, nil)
	v := &engine.Verification{
		//                                     0.35 .40 0.10       0.40 0.20
		Draft: engine.Draft{Tokens: []int32{1, 0, 3, 3, 2}, Parents: []int32{-1, -1, 0, 1, 1}}, Position: 3, Argmax: make([]int32, 6), Sampler: s,
		Logits: func(i int) []float32 { return rows[i] },
	}
	rule := ruleOf(t, "typical:epsilon=0.15")
	got, err := rule.Verify(v)
	require.NoError(t, err)
	require.Equal(t, []int32{1, 3}, got.Path) // 0.4 x 0.4
	v.Draft.Parents[3], v.Draft.Tokens[3] = 0, 0
	rows[1] = scripted(0.9, 0.02, 0.02, 0.06)
	got, err = rule.Verify(v)
	require.NoError(t, err)
	require.Equal(t, []int32{0, 3}, got.Path) // 0.35 x 0.9 before 0.4 x 0.3
	require.Equal(t, engine.NextBonus, got.Kind)
	v.Draft.Tokens[0], v.Draft.Tokens[1] = 3, 3
	got, err = rule.Verify(v)
	require.NoError(t, err)
	require.Empty(t, got.Path)
	require.Equal(t, engine.NextCorrection, got.Kind)
}

// guessing drafts chains and trees of random tokens, of which some are likely.
func guessing(r *rand.Rand, m *toy) func(history []int32) engine.Draft {
	return func([]int32) engine.Draft {
		d := engine.Draft{}
		for i := range r.IntN(9) {
			d.Tokens = append(d.Tokens, int32(r.IntN(m.vocab)))
			d.Parents = append(d.Parents, int32(r.IntN(i+1))-1)
		}
		if r.IntN(2) == 0 {
			d.Parents = nil
		}
		return d
	}
}

// At their limits lossy rules give the tokens of plain decoding, whatever the
// drafts; where everything likely stands they do not; and they repeat themselves,
// seed by seed.
func TestLossyLimits(t *testing.T) {
	const n = 40
	differ, apart := map[string]int{}, map[string]int{}
	for trial := range 60 {
		m := &toy{vocab: 2 + trial%12, salt: uint64(trial), scale: 2}
		p := sample.Params{Seed: uint64(trial) * 77, Temperature: float32(trial%3) * 0.6}
		if trial%4 == 0 {
			p.PresencePenalty, p.TopP = 0.4, 0.9
		}
		if trial%5 == 1 {
			p.Grammar = "(a|bb?|[^ab][^c])*"
		}
		prompt := []int32{0, 1, 1}
		say := func(rule string, p sample.Params, seed uint64) []int32 {
			got, _ := speakTrees(t, ruleOf(t, rule), m, p, prompt, n, guessing(rand.New(rand.NewPCG(seed, 1)), m))
			return got[:n]
		}
		plain, _ := speak(t, coupled{}, m, p, prompt, n, func([]int32) []int32 { return nil })
		require.Equal(t, plain, say("typical:epsilon=1,delta=1e+09", p, 1))
		require.Equal(t, plain, say("threshold:single=1", p, 2))
		require.Equal(t, plain[:n], func() []int32 {
			got, _ := speak(t, ruleOf(t, "typical:epsilon=0"), m, p, prompt, n, func([]int32) []int32 { return nil })
			return got[:n]
		}(), "without drafts every rule is plain")
		for _, rule := range []string{"typical", "threshold", "threshold:single=1,top_n=2"} {
			first := say(rule, p, 3)
			require.Equal(t, first, say(rule, p, 3))
			if other := p; p.Temperature > 0 {
				other.Seed++
				if !slices.Equal(first, say(rule, other, 3)) {
					apart[rule]++
				}
			}
			if !slices.Equal(plain, first) {
				differ[rule]++
			}
		}
		if p.Temperature == 0 {
			require.Equal(t, plain, say("typical", p, 4))
		}
	}
	for _, rule := range []string{"typical", "threshold", "threshold:single=1,top_n=2"} {
		require.Greater(t, differ[rule], 20, rule)
		require.Greater(t, apart[rule], 20, rule)
	}
}

// As the temperature falls, typical acceptance becomes greedy.
func TestTypicalIsGreedyInTheEnd(t *testing.T) {
	m := &toy{vocab: 9, salt: 8, scale: 2}
	draft := guessing(rand.New(rand.NewPCG(5, 6)), m)
	want, _ := speak(t, greedy{}, m, sample.Params{}, []int32{2}, 60, func([]int32) []int32 { return nil })
	got, accepted := speakTrees(t, ruleOf(t, "typical"), m, sample.Params{Temperature: 1e-4}, []int32{2}, 60, draft)
	require.Equal(t, want, got[:60])
	require.Greater(t, accepted, 5)
}

// The output of a lossy rule is of another distribution: what proves the others
// right tells these apart.
func TestLossyIsSeen(t *testing.T) {
	for _, name := range []string{"typical", "threshold"} {
		tv := lossyVariation(t, name)
		t.Logf("%s: total variation %.3f", name, tv)
		require.Greater(t, tv, 0.05)
	}
}

// lossyVariation is the total variation of the first token's distribution from the
// target's, over many seeds, of drafts that are drawn evenly.
func lossyVariation(t *testing.T, name string) float64 {
	const n = 20_000
	m := &toy{vocab: 4, salt: 3, scale: 1}
	rule, prompt := ruleOf(t, name), []int32{1}
	got := make([]float64, m.vocab)
	for seed := range uint64(n) {
		p := sample.Params{Temperature: 1, Seed: seed}
		s := sample.New(p, prompt)
		d := engine.Draft{Tokens: []int32{int32(s.Stream(sample.Draft, 0, 0).Uniform(0) * 4)}}
		v, err := rule.Verify(m.verification(s, prompt, d))
		require.NoError(t, err)
		got[out(d, v)[0]]++
	}
	tv := 0.0
	for i, p := range m.dist(sample.New(sample.Params{Temperature: 1}, prompt), prompt, nil) {
		tv += math.Abs(p-got[i]/n) / 2
	}
	return tv
}
