package draft

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// market is a world of sequences with known acceptance and known costs.
type market struct {
	rates  func(step, seq int) []float64 // conditional, by position
	target func(sequences, drafts int) float64
	draft  func(depth int) float64
	noise  float64
	// pace, if any, is how many times as long a step seems to take: a machine that
	// is shared. What a policy is worth counts without it.
	pace    func(step int, r *rand.Rand) float64
	n, most int
}

// run decodes steps with a policy and returns committed tokens per unit of time.
func (m *market) run(p engine.Lengths, steps int, seed uint64) float64 {
	r, paces := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	seqs := make([]*engine.Sequence, m.n)
	for i := range seqs {
		seqs[i] = engine.NewSequence(int64(i), engine.Request{})
	}
	tokens, time := 0.0, 0.0
	for step := range steps {
		asks := make([]engine.LengthAsk, m.n)
		for i := range asks {
			asks[i] = engine.LengthAsk{Seq: seqs[i], Most: m.most}
		}
		p.Choose(asks)
		o := engine.StepOutcome{}
		drafts, depth := 0, 0
		for i, a := range asks {
			rates, accepted := m.rates(step, i), 0
			for accepted < a.K && r.Float64() < rates[accepted] {
				accepted++
			}
			drafts, depth = drafts+a.K, max(depth, a.K)
			tokens += float64(accepted + 1)
			o.Sequences = append(o.Sequences, engine.LengthOutcome{Seq: seqs[i], Drafts: a.K, Accepted: engine.Accepted(accepted)})
		}
		draft := m.draft(depth)
		total := draft + m.target(m.n, drafts)
		time += total
		seems := 1e6
		if m.pace != nil {
			seems *= m.pace(step, paces)
		}
		o.DraftNs = int64(seems * draft)
		o.TotalNs = int64(seems * total * (1 + m.noise*r.NormFloat64()))
		p.Observe(&o)
	}
	return tokens / time
}

// bestFixed is the best that a fixed length does.
func (m *market) bestFixed(steps int) (best float64, k int) {
	for f := range m.most + 1 {
		policy := byBatch{{1, f}}
		if got := m.run(policy, steps, 7); got > best {
			best, k = got, f
		}
	}
	return best, k
}

func steady(rates ...float64) func(int, int) []float64 {
	return func(int, int) []float64 { return rates }
}

func TestAutoIsNearTheBestFixedLength(t *testing.T) {
	cheap := func(n, drafts int) float64 { return 1 + 0.05*float64(drafts) + 0.01*float64(n) }
	dear := func(n, drafts int) float64 { return 1 + 0.3*float64(drafts) }
	chain := func(depth int) float64 { return 0.02 + 0.08*float64(depth) }
	free := func(int) float64 { return 0.001 }
	for i, c := range []struct {
		name   string
		m      market
		within float64
	}{
		{"good drafts, cheap rows", market{rates: steady(.8, .75, .7, .65, .6, .5, .4, .3), target: cheap, draft: chain, n: 1}, 0.97},
		{"good drafts, dear rows", market{rates: steady(.8, .75, .7, .65, .6, .5, .4, .3), target: dear, draft: chain, n: 1}, 0.97},
		{"first draft only", market{rates: steady(.9, .05, .05, .05, .05, .05, .05, .05), target: cheap, draft: chain, n: 1}, 0.97},
		{"always wrong", market{rates: steady(0, 0, 0, 0, 0, 0, 0, 0), target: cheap, draft: chain, n: 1}, 0.985},
		{"always right", market{rates: steady(1, 1, 1, 1, 1, 1, 1, 1), target: cheap, draft: free, n: 1}, 0.97},
		{"eight sequences, dear rows", market{rates: steady(.6, .5, .4, .3, .2, .1, .1, .1), target: func(n, d int) float64 { return 1 + 0.09*float64(d) }, draft: chain, n: 8}, 0.97},
		{"sixteen sequences, nothing pays", market{rates: steady(.3, .3, .3, .3, .3, .3, .3, .3), target: func(n, d int) float64 { return 1 + 0.06*float64(d+n) }, draft: chain, n: 16}, 0.985},
	} {
		for _, noise := range []float64{0, 0.1} {
			t.Run(fmt.Sprintf("%s, noise %v", c.name, noise), func(t *testing.T) {
				m := c.m
				m.noise, m.most = noise, 8
				best, k := m.bestFixed(3000)
				got := m.run(NewAuto(), 3000, uint64(i))
				t.Logf("auto gives %.3f of the best fixed length, %d", got/best, k)
				require.Greater(t, got/best, c.within)
			})
		}
	}
}

// bursts is a machine on which others work for a while, now and then: at every step
// a burst begins with a probability, of a length and slowness drawn at random.
func bursts(begin float64, least, most int, slow float64) func(int, *rand.Rand) float64 {
	left, by := 0, 1.0
	return func(step int, r *rand.Rand) float64 {
		if step == 0 {
			left = 0
		}
		if left == 0 && r.Float64() < begin {
			left, by = least+r.IntN(most-least), 1+(slow-1)*r.Float64()
		}
		pace := 1.0
		if left > 0 {
			left, pace = left-1, by
		}
		if r.Float64() < 0.03 { // a step that something stood in the way of
			pace *= 1 + 4*r.Float64()
		}
		return pace * (1 + 0.08*math.Abs(r.NormFloat64()))
	}
}

// drift is a machine whose pace goes up and down by a share, in so many steps.
func drift(share, period float64) func(int, *rand.Rand) float64 {
	return func(step int, r *rand.Rand) float64 {
		return (1 + share*math.Sin(2*math.Pi*float64(step)/period)) * (1 + 0.08*math.Abs(r.NormFloat64()))
	}
}

// What others do on the machine must not make a length look better or worse than it
// is, however its measurements fall.
func TestAutoOnASlowMachine(t *testing.T) {
	embedded := func(n, drafts int) float64 { return 0.64 + 0.09*float64(drafts) }
	compute := func(n, drafts int) float64 { return 0.6 + 0.04*float64(drafts) + 0.02*float64(drafts*drafts) }
	chain := func(depth int) float64 {
		if depth == 0 {
			return 0
		}
		return 0.05 + 0.05*float64(depth)
	}
	drafts := map[string]struct {
		rates  []float64
		target func(int, int) float64
	}{
		"good drafts":         {[]float64{.77, .82, .79, .82, .80, .80, .80, .80}, embedded},
		"good drafts, a bend": {[]float64{.77, .82, .79, .82, .80, .80, .80, .80}, compute},
		"poor drafts":         {[]float64{.5, .5, .5, .5, .5, .5, .5, .5}, embedded},
		"great drafts":        {[]float64{.95, .95, .95, .95, .95, .95, .95, .95}, embedded},
		"wrong drafts":        {[]float64{0, 0, 0, 0, 0, 0, 0, 0}, embedded},
	}
	for pace, machine := range map[string]func() func(int, *rand.Rand) float64{
		"short bursts": func() func(int, *rand.Rand) float64 { return bursts(0.02, 5, 40, 4) },
		"long bursts":  func() func(int, *rand.Rand) float64 { return bursts(0.002, 100, 600, 3) },
		"slow start": func() func(int, *rand.Rand) float64 {
			b := bursts(0.002, 5, 40, 2)
			return func(step int, r *rand.Rand) float64 {
				if p := b(step, r); step >= 40 {
					return p
				}
				return 3
			}
		},
		"drift": func() func(int, *rand.Rand) float64 { return drift(0.4, 300) },
	} {
		for name, d := range drafts {
			t.Run(name+", "+pace, func(t *testing.T) {
				m := market{rates: steady(d.rates...), target: d.target, draft: chain, n: 1, most: 8}
				best, k := m.bestFixed(20000)
				m.pace = machine()
				got, least := 0.0, 1.0
				const seeds, steps = 8, 1500
				for seed := range uint64(seeds) {
					x := m.run(NewAuto(), steps, seed) / best
					got, least = got+x/seeds, min(least, x)
				}
				t.Logf("auto gives %.3f of the best fixed length, %d, at least %.3f", got, k, least)
				require.Greater(t, got, 0.97)
			})
		}
	}
}

// Half of the sequences draft well, the others badly: one length for all is worse.
func TestAutoIsBetterThanFixedOnAMixture(t *testing.T) {
	m := market{
		rates: func(_, seq int) []float64 {
			if seq%2 == 0 {
				return []float64{.95, .95, .95, .95, .95, .95, .95, .95}
			}
			return []float64{.05, .05, .05, .05, .05, .05, .05, .05}
		},
		target: func(n, d int) float64 { return 1 + 0.1*float64(d) }, draft: func(int) float64 { return 0.01 },
		n: 4, most: 8, noise: 0.05,
	}
	best, _ := m.bestFixed(4000)
	got := m.run(NewAuto(), 4000, 3)
	t.Logf("auto gives %.3f of the best fixed length", got/best)
	require.Greater(t, got/best, 1.1)
}

// A sequence whose drafts begin to be right after a long time is noticed.
func TestAutoNoticesAChange(t *testing.T) {
	m := market{
		rates: func(step, _ int) []float64 {
			if step < 1500 {
				return []float64{0, 0, 0, 0}
			}
			return []float64{.95, .95, .95, .95}
		},
		target: func(_, d int) float64 { return 1 + 0.05*float64(d) }, draft: func(d int) float64 { return 0.02 * float64(d) },
		n: 1, most: 4,
	}
	plain := m.run(byBatch{{1, 0}}, 6000, 1)
	got := m.run(NewAuto(), 6000, 1)
	t.Logf("auto gives %.2f x plain", got/plain)
	require.Greater(t, got/plain, 2.2)
}

func TestLengthValidate(t *testing.T) {
	for _, good := range []Length{{}, {Auto: true}, {ByBatch: [][]int{{1, 4}, {8, 0}}}} {
		require.NoError(t, good.Validate())
	}
	for want, bad := range map[string]Length{
		"auto and by_batch":         {Auto: true, ByBatch: [][]int{{1, 2}}},
		"by_batch[1] is from 1":     {ByBatch: [][]int{{1, 4}, {1, 3}}},
		"by_batch[0] is from 0":     {ByBatch: [][]int{{0, 4}}},
		"by_batch[0] has 1 numbers": {ByBatch: [][]int{{1}}},
		"by_batch[0] has k -1; it":  {ByBatch: [][]int{{1, -1}}},
	} {
		require.ErrorContains(t, bad.Validate(), want)
	}
	require.Nil(t, (&Length{}).New())
	asks := make([]engine.LengthAsk, 9)
	for i := range asks {
		asks[i].Most = 5
	}
	l := Length{ByBatch: [][]int{{2, 3}, {8, 1}}}
	for n, want := range map[int]int{1: 5, 2: 3, 7: 3, 8: 1, 9: 1} {
		l.New().Choose(asks[:n])
		require.Equal(t, want, asks[0].K, "%d sequences", n)
	}
}
