package verify

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

func TestRegistry(t *testing.T) {
	require.Equal(t, []string{"block", "coupled", "greedy", "rejection", "threshold", "typical"}, Names())
	for _, i := range List() {
		require.NotEmpty(t, i.Summary)
		require.Equal(t, strings.HasPrefix(i.Summary, "LOSSY: "), i.Lossy(), i.Name)
		rule, err := New(i.Name)
		require.NoError(t, err)
		require.Equal(t, i.Name, rule.Name())
	}
	_, err := New("lucky")
	require.EqualError(t, err, `unknown rule "lucky"; known rules: block, coupled, greedy, rejection, threshold, typical`)
	require.Panics(t, func() { Register(List()[0]) })
}

func TestPromises(t *testing.T) {
	greedy, sampled, penal := sample.Params{}, sample.Params{Temperature: 1}, sample.Params{PresencePenalty: 1}
	for name, want := range map[string]struct{ exactSampled, serves bool }{
		"greedy": {false, false}, "rejection": {false, true}, "coupled": {true, true},
	} {
		rule, err := New(name)
		require.NoError(t, err)
		require.True(t, rule.Exact(greedy))
		require.True(t, rule.Exact(penal))
		require.Equal(t, want.exactSampled, rule.Exact(sampled), name)
		require.False(t, rule.NeedsLogits(greedy))
		require.True(t, rule.NeedsLogits(penal))
		require.True(t, rule.NeedsLogits(sampled))
		require.NoError(t, Serves(rule, penal))
		if err := Serves(rule, sampled); want.serves {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "rule greedy serves temperature 0, not 1; rejection keeps the distribution of sampling, coupled also its tokens")
		}
	}
}

// speak generates n tokens from a prompt with a rule. draft proposes; it may look
// at the tokens that plain decoding gives, if there are any.
func speak(t *testing.T, rule engine.Verifier, m *toy, p sample.Params, prompt []int32, n int, draft func(history []int32) []int32) (tokens []int32, accepted int) {
	return speakTrees(t, rule, m, p, prompt, n, func(history []int32) engine.Draft { return engine.Draft{Tokens: draft(history)} })
}

// speakTrees is speak with drafts that may be trees.
func speakTrees(t *testing.T, rule engine.Verifier, m *toy, p sample.Params, prompt []int32, n int, draft func(history []int32) engine.Draft) (tokens []int32, accepted int) {
	s := sample.New(p, prompt)
	constrain(t, s, m.vocab)
	history := append([]int32(nil), prompt...)
	for len(history) < len(prompt)+n {
		d := draft(history)
		v := m.verification(s, history, d)
		verdict, err := rule.Verify(v)
		require.NoError(t, err)
		row := int(verdict.Accepted)
		if len(verdict.Path) > 0 {
			row = int(verdict.Path[len(verdict.Path)-1]) + 1
		}
		switch {
		case len(d.Tokens) == 0:
			require.Equal(t, engine.NextSampled, verdict.Kind)
		case d.First(row) < 0:
			require.Equal(t, engine.NextBonus, verdict.Kind)
		default:
			require.Equal(t, engine.NextCorrection, verdict.Kind)
			if !engine.Lossy(rule) && (d.Parents == nil || rule.Name() != "block") {
				require.Negative(t, d.Child(row, verdict.Next))
			}
		}
		require.Greater(t, len(verdict.Targets), int(verdict.Accepted))
		if !engine.Lossy(rule) && (d.Parents == nil || len(verdict.Targets) == len(verdict.Path)+1) {
			require.Equal(t, out(d, verdict), verdict.Targets[:verdict.Accepted+1])
		}
		accepted += int(verdict.Accepted)
		history = append(history, out(d, verdict)...)
		s.Push(out(d, verdict)...)
	}
	return history[len(prompt):], accepted
}

// The exact rules give the tokens of plain decoding, whatever the drafts.
func TestTokensOfPlainDecoding(t *testing.T) {
	const n = 40
	r := rand.New(rand.NewPCG(1, 2))
	accepted := map[string]int{}
	for trial := range 150 {
		m := &toy{vocab: 2 + r.IntN(20), salt: uint64(trial), scale: 2}
		prompt := []int32{0, 1, 1}
		p := sample.Params{Seed: r.Uint64(), Choice: uint32(trial % 3)}
		if trial%2 == 0 {
			p.PresencePenalty, p.FrequencyPenalty, p.RepetitionPenalty = 0.3, 0.1, 1.2
		}
		if trial%3 == 0 {
			p.Temperature, p.TopP, p.TopK = 0.9, 0.95, 8
		}
		if trial%4 == 1 {
			p.Grammar = "(a|bb?|[^ab][^c])*"
		}
		for _, name := range Names() {
			rule, err := New(name)
			require.NoError(t, err)
			if !rule.Exact(p) {
				continue
			}
			none := func([]int32) []int32 { return nil }
			plain, zero := speak(t, rule, m, p, prompt, n, none)
			require.Zero(t, zero)
			guess := func(history []int32) []int32 {
				d := make([]int32, r.IntN(9))
				for i := range d {
					d[i] = int32(r.IntN(m.vocab))
					if at := len(history) - len(prompt) + i; r.IntN(8) > 0 && at < n {
						d[i] = plain[at]
					}
				}
				return d
			}
			got, hits := speak(t, rule, m, p, prompt, n, guess)
			require.Equal(t, plain, got[:n], "%s %+v", name, p)
			accepted[name] += hits
		}
	}
	for _, name := range lossless() {
		require.Greater(t, accepted[name], 1000, name)
	}
}

// lossless lists the rules that promise something about their output.
func lossless() (names []string) {
	for _, i := range List() {
		if !i.Lossy() {
			names = append(names, i.Name)
		}
	}
	return names
}

// At temperature 0 all rules are one, but for thresholds.
func TestGreedyIsGreedy(t *testing.T) {
	m := &toy{vocab: 7, salt: 5, scale: 1}
	for _, p := range []sample.Params{{}, {FrequencyPenalty: 1}} {
		var want []int32
		for _, name := range append(lossless(), "typical", "threshold:single=1") {
			rule, err := New(name)
			require.NoError(t, err)
			got, _ := speak(t, rule, m, p, []int32{1}, 20, func(h []int32) []int32 { return []int32{h[0], 2} })
			if want == nil {
				want = got
			}
			require.Equal(t, want, got)
		}
	}
}

func TestBadInput(t *testing.T) {
	m := &toy{vocab: 3, salt: 1, scale: 1}
	nan := float32(math.NaN())
	sampled := sample.Params{Temperature: 1}
	for _, c := range []struct {
		rule  string
		draft engine.Draft
		want  string
	}{
		{"greedy", engine.Draft{}, "rule greedy serves temperature 0, not 1; rejection keeps the distribution of sampling, coupled also its tokens"},
		{"rejection", engine.Draft{Tokens: []int32{0, 1}, Probs: [][]float32{{1, 0, 0}}}, "the draft has 2 tokens and 1 distributions; it needs one each, or none"},
		{"rejection", engine.Draft{Tokens: []int32{1}, Probs: [][]float32{{1, 0, 0}}}, "draft 0: its distribution gives 0 to token 1, which was drawn from it, of 1 in all"},
		{"rejection", engine.Draft{Tokens: []int32{1}, Probs: [][]float32{{0, 1}}}, "draft 0: its distribution has 2 entries; the vocabulary has 3"},
		{"rejection", engine.Draft{Tokens: []int32{1}, Probs: [][]float32{{0, 1, nan}}}, "draft 0: its distribution has NaN at token 2"},
		{"rejection", engine.Draft{Tokens: []int32{1}, Probs: [][]float32{{-1, 1, 1}}}, "draft 0: its distribution has -1 at token 0"},
		{"rejection", engine.Draft{Tokens: []int32{3}}, "draft 0: token 3 is outside the vocabulary of 3"},
	} {
		rule, err := New(c.rule)
		require.NoError(t, err)
		s := sample.New(sampled, nil)
		v := &engine.Verification{Draft: c.draft, Argmax: []int32{0, 0, 0}, Position: 4, Sampler: s, Logits: func(int) []float32 { return m.logits(nil) }}
		_, err = rule.Verify(v)
		require.EqualError(t, err, c.want)
	}
	for _, name := range Names() {
		rule, err := New(name)
		require.NoError(t, err)
		p := sampled
		if name == "greedy" {
			p = sample.Params{PresencePenalty: 1}
		}
		v := &engine.Verification{Argmax: []int32{0}, Sampler: sample.New(p, nil), Logits: func(int) []float32 { return []float32{0, nan, 0} }}
		_, err = rule.Verify(v)
		require.ErrorAs(t, err, new(*sample.RowError))
	}
}

// A residual without mass (p equals q, and the uniform was above 1 by rounding)
// falls back to p.
func TestEmptyResidual(t *testing.T) {
	r := newRejection()
	p := []float32{0.25, 0.75}
	r.weights = widen(nil, p)
	r.replace(p, 1)
	require.Equal(t, []float64{0.25, 0.75}, r.weights)
	r.weights = []float64{0, 1}
	r.replace(nil, 1)
	require.Equal(t, []float64{0, 1}, r.weights)
}

// Drafts drawn with the target's noise are accepted more often than drafts drawn
// on their own.
func TestCouplingHelps(t *testing.T) {
	m := &toy{vocab: 8, salt: 3, scale: 1}
	p := sample.Params{Temperature: 1, Seed: 11}
	s := sample.New(p, nil)
	propose := func(draw func(q []float32, position int) int32) int {
		_, accepted := speak(t, coupled{}, m, p, []int32{1, 2}, 3000, func(h []int32) []int32 {
			q, err := s.Process(m.logits(h), nil)
			require.NoError(t, err)
			return []int32{draw(q, len(h))}
		})
		return accepted
	}
	with := propose(p.Coupled)
	alone := propose(func(q []float32, position int) int32 {
		return sample.Sample(q, s.Stream(sample.Draft, position, 0).Uniform(0))
	})
	require.Equal(t, 1500, with) // the drafter is the target: every guess is right
	require.Less(t, alone, 1000)
}
