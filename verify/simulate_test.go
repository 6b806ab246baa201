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

// binomialTail is the exact probability that a binomial count is as far from its
// mean as x, on that side.
func binomialTail(n, x int, p float64) float64 {
	lg := func(v int) float64 { l, _ := math.Lgamma(float64(v + 1)); return l }
	from, to := 0, x
	if float64(x) > float64(n)*p {
		from, to = x, n
	}
	tail := 0.0
	for i := from; i <= to; i++ {
		tail += math.Exp(lg(n) - lg(i) - lg(n-i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return tail
}

func TestBinomialTail(t *testing.T) {
	require.InDelta(t, 0.5, binomialTail(3, 1, 0.5), 1e-12)
	require.InDelta(t, 0.5, binomialTail(3, 2, 0.5), 1e-12)
	require.InDelta(t, 0.001, binomialTail(3, 3, 0.1), 1e-12)
}

// forcedRun runs a rule under a simulation over a toy model with poor drafts, and
// returns the accepted counts of its steps of k drafts.
func forcedRun(t *testing.T, s Simulation, k, steps int, p sample.Params) (accepted []int) {
	t.Helper()
	rule, err := New("coupled")
	require.NoError(t, err)
	rule, err = Simulate(rule, s, k)
	require.NoError(t, err)
	m := &toy{vocab: 5, salt: 9, scale: 1}
	r := rand.New(rand.NewPCG(3, 4))
	sampler := sample.New(p, nil)
	history := []int32{1}
	for range steps {
		d := engine.Draft{}
		for range k {
			d.Tokens = append(d.Tokens, int32(r.IntN(m.vocab)))
		}
		verdict, err := rule.Verify(m.verification(sampler, history[max(0, len(history)-8):], d))
		require.NoError(t, err)
		require.NotNil(t, verdict.Simulation)
		require.Equal(t, s.String(), verdict.Simulation.Spec)
		accepted = append(accepted, int(verdict.Accepted))
		history = append(history, out(d, verdict)...)
		sampler = sample.New(sample.Params{Seed: r.Uint64()}, nil)
	}
	return accepted
}

// A fractional length is realised without bias and without rounding: the two
// counts on either side, with the fraction's probability.
func TestSimulatedLengthIsUnbiased(t *testing.T) {
	const steps = 4000
	for _, length := range []float64{2.3, 2.7, 1.05, 3.5} {
		accepted := forcedRun(t, Simulation{Length: length}, 4, steps, sample.Params{Seed: 5})
		whole, fraction := math.Modf(length - 1)
		more := 0
		for _, n := range accepted {
			require.Contains(t, []int{int(whole), int(whole) + 1}, n)
			more += n - int(whole)
		}
		require.Positive(t, more)
		require.Less(t, more, steps)
		tail := binomialTail(steps, more, fraction)
		t.Logf("length %v: mean %.4f, exact one-sided p %.3f", length, whole+1+float64(more)/steps, tail)
		require.Greater(t, tail, 1e-6)
	}
	for _, length := range []float64{1, 2, 5} {
		for _, n := range forcedRun(t, Simulation{Length: length}, 4, 500, sample.Params{Seed: 5}) {
			require.Equal(t, int(length)-1, n)
		}
	}
}

// The rates that come out are the unconditional ones that were asked for.
func TestSimulatedRatesAreUnconditional(t *testing.T) {
	const steps = 8000
	s := Simulation{Rates: []float64{0.9, 0.5, 0.2}}
	reached := make([]int, 4)
	for _, n := range forcedRun(t, s, 4, steps, sample.Params{Seed: 6}) {
		for i := range n {
			reached[i]++
		}
	}
	for i, rate := range s.Rates {
		tail := binomialTail(steps, reached[i], rate)
		t.Logf("rate %d: %.4f, exact one-sided p %.3f", i, float64(reached[i])/steps, tail)
		require.Greater(t, tail, 1e-6)
	}
	require.Zero(t, reached[3])
	require.InDelta(t, 2.6, s.Mean(), 1e-12)
	require.Equal(t, engine.Accepted(3), s.Most())
}

// With length 1 the output is plain decoding's under every rule, though the
// drafts are real and often right: the token after the forced drafts is the
// target's there, not the one that followed the real run. The same holds after
// any forced drafts: the next token is what a step without drafts gives.
func TestSimulatedNextIsPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	right := map[string]int{}
	for trial := range 60 {
		m := &toy{vocab: 2 + r.IntN(12), salt: uint64(trial), scale: 2}
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
			if Serves(rule, p) != nil {
				continue
			}
			const n, k = 24, 3
			plain, _ := speak(t, rule, m, p, prompt, n, func([]int32) []int32 { return nil })
			for _, s := range []Simulation{{Length: 1}, {Length: 2.5}, {Rates: []float64{0.7, 0.4, 0.1}}} {
				forced, err := Simulate(rule, s, k)
				require.NoError(t, err)
				got, real := simulatedText(t, forced, rule, m, p, prompt, n, k, func(at int) int32 {
					if r.IntN(6) > 0 && at < n {
						return plain[at]
					}
					return int32(r.IntN(m.vocab))
				})
				right[name] += real
				if s.Length == 1 {
					require.Equal(t, plain, got[:n], "%s %+v", name, p)
				}
			}
		}
	}
	for name, n := range right {
		require.Greater(t, n, 100, name)
	}
}

// simulatedText generates tokens under a simulation, and holds each step to what
// the rule itself says.
func simulatedText(t *testing.T, forced, rule engine.Verifier, m *toy, p sample.Params, prompt []int32, n, k int, guess func(at int) int32) (tokens []int32, real int) {
	t.Helper()
	s := sample.New(p, prompt)
	history := slices.Clone(prompt)
	for len(history) < len(prompt)+n {
		d := engine.Draft{}
		for i := range k {
			d.Tokens = append(d.Tokens, guess(len(history)-len(prompt)+i))
		}
		got, err := forced.Verify(m.verification(s, history, d))
		require.NoError(t, err)
		want, err := rule.Verify(m.verification(s, history, d))
		require.NoError(t, err)
		require.Equal(t, want.Accepted, got.Simulation.Real)
		require.Equal(t, want.Next, got.Simulation.RealNext)
		require.Equal(t, want.Targets, got.Targets)
		real += int(want.Accepted)

		// A step of a sampler that has been pushed the forced drafts.
		after := sample.New(p, prompt)
		after.Push(history[len(prompt):]...)
		after.Push(d.Tokens[:got.Accepted]...)
		step, err := rule.Verify(m.verification(after, join(history, d.Tokens[:got.Accepted]), engine.Draft{}))
		require.NoError(t, err)
		require.Equal(t, step.Next, got.Next)
		kind := engine.NextCorrection
		if int(got.Accepted) == k {
			kind = engine.NextBonus
		}
		require.Equal(t, kind, got.Kind)
		spec, err := ParseSimulation(got.Simulation.Spec)
		require.NoError(t, err)
		again, bounded := SimulatedAccepted(spec, p, len(history)-1, k)
		require.Equal(t, again, got.Accepted)
		require.False(t, bounded)
		history = append(history, out(d, got)...)
		s.Push(out(d, got)...)
	}
	return history[len(prompt):], real
}

// A step with fewer drafts than were drawn accepts them all, and can be told from
// one that was honoured.
func TestSimulationIsBounded(t *testing.T) {
	m := &toy{vocab: 4, salt: 1, scale: 1}
	s := Simulation{Length: 3.5}
	rule, err := Simulate(greedy{}, s, 3)
	require.NoError(t, err)
	require.False(t, rule.Exact(sample.Params{}))
	require.Equal(t, "greedy", rule.Name())
	require.Equal(t, "length=3.5", SimulationOf(rule))
	require.Empty(t, SimulationOf(greedy{}))
	require.EqualError(t, Serves(rule, sample.Params{Temperature: 1}), Serves(greedy{}, sample.Params{Temperature: 1}).Error())
	require.EqualError(t, Serves(rule, sample.Params{Grammar: "a"}), "simulation length=3.5 accepts drafts that the grammar forbids; simulate without a grammar")
	sampler := sample.New(sample.Params{}, nil)
	for n := range 5 {
		v := m.verification(sampler, []int32{1, 2}, engine.Draft{Tokens: []int32{0, 1, 2, 3}[:n]})
		got, err := rule.Verify(v)
		if n > 3 {
			require.EqualError(t, err, "simulation length=3.5 of 3 drafts a step: 4 drafts and 5 rows")
			continue
		}
		require.NoError(t, err)
		forced, bounded := SimulatedAccepted(s, sample.Params{}, 1, n)
		require.Equal(t, forced, got.Accepted)
		require.Equal(t, n < int(s.Draw(sample.Params{}, 1)), bounded)
		require.LessOrEqual(t, int(got.Accepted), n)
		if n == 0 {
			require.Equal(t, engine.NextSampled, got.Kind)
		}
	}
}

// Draws belong to seed, choice and length.
func TestSimulatedDraws(t *testing.T) {
	s := Simulation{Length: 2.5}
	draws := func(p sample.Params) (out []engine.Accepted) {
		for position := range 200 {
			out = append(out, s.Draw(p, position))
		}
		return out
	}
	one := draws(sample.Params{Seed: 1})
	require.Equal(t, one, draws(sample.Params{Seed: 1, Temperature: 1}))
	require.NotEqual(t, one, draws(sample.Params{Seed: 2}))
	require.NotEqual(t, one, draws(sample.Params{Seed: 1, Choice: 1}))
}

func TestSimulationRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                 `simulate: ""; want length=2.6 or rates=0.9,0.5`,
		"2.6":              `simulate: "2.6"; want length=2.6 or rates=0.9,0.5`,
		"drafts=2":         `simulate: "drafts=2"; want length=2.6 or rates=0.9,0.5`,
		"length=":          `simulate: length: "" is not a number`,
		"length=2,3":       `simulate: length: "2,3" is not one number`,
		"length=two":       `simulate: length: "two" is not a number`,
		"length=4.01":      "simulate: length: 4.01 is out of range 1..4 (k+1 with k = 3; the token after the drafts counts)",
		"length=0.99":      "simulate: length: 0.99 is out of range 1..4 (k+1 with k = 3; the token after the drafts counts)",
		"length=NaN":       "simulate: length: NaN is out of range 1..4 (k+1 with k = 3; the token after the drafts counts)",
		"length=-2":        "simulate: length: -2 is out of range 1..4 (k+1 with k = 3; the token after the drafts counts)",
		"length=1e999":     "simulate: length: +Inf is out of range 1..4 (k+1 with k = 3; the token after the drafts counts)",
		"rates=":           `simulate: rates: "" is not a number`,
		"rates=0.5,x":      `simulate: rates: "x" is not a number`,
		"rates=0.5,0.6":    "simulate: rates[1]: 0.6 is above 0.5 before it; a rate is of all drafts up to its own, so rates do not rise",
		"rates=1.5":        "simulate: rates[0]: 1.5 is out of range 0..1",
		"rates=1,NaN":      "simulate: rates[1]: NaN is out of range 0..1",
		"rates=-0.1":       "simulate: rates[0]: -0.1 is out of range 0..1",
		"rates=.9,.5,.2,0": "simulate: rates[3]: 0 is of draft 4, and a step has 3",
	} {
		s, err := ParseSimulation(text)
		if err == nil {
			_, err = Simulate(greedy{}, s, 3)
		}
		require.EqualError(t, err, want, text)
	}
	_, err := Simulate(greedy{}, Simulation{Rates: []float64{}}, 3)
	require.EqualError(t, err, "simulate: rates: is empty; give the rate of each draft position")
	_, err = Simulate(greedy{}, Simulation{Rates: []float64{1}, Length: 2}, 3)
	require.EqualError(t, err, "simulate: length: is given beside rates; give one of them")
	for _, text := range []string{"length=2.6", "length=4", "rates=0.9,0.5", "rates=1,1,1"} {
		s, err := ParseSimulation(text)
		require.NoError(t, err)
		require.NoError(t, s.Validate(3))
		require.Equal(t, text, s.String())
	}
}
