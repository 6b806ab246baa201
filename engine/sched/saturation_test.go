package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// load is a workload whose outputs do not all fit in memory.
type load struct {
	name     string
	requests int
	flight   int // in flight at once; the next one arrives as one ends
	maxOut   int
	fixed    bool
	output   func(rng *rand.Rand) int // tokens at which an output stops
	thrashes bool                     // when admitted by what is known at the time alone
}

func lognormal(median, sigma float64) func(*rand.Rand) int {
	return func(rng *rand.Rand) int { return 1 + int(median*math.Exp(sigma*rng.NormFloat64())) }
}

// outcome is what a load came to.
type outcome struct {
	computed, recomputed, preempted, steps int
	decoding                               float64 // mean sequences that decode
	wait                                   int64   // longest from arrival to admission, in steps
}

// run carries a load out, with no device: each step keeps all that it plans.
func (l load) run(t *testing.T, cfg Config, seed uint64) (o outcome) {
	rng := rand.New(rand.NewPCG(seed, 9))
	c := newCore(t, cfg)
	ends, arrived := map[int64]int{}, map[int64]int64{}
	next := int64(0)
	for {
		for ; int(next) < l.requests && c.Len() < l.flight; next++ {
			prompt := make([]int32, 300+rng.IntN(400))
			for i := range prompt {
				prompt[i] = int32(next)
			}
			ends[next] = len(prompt) + min(l.output(rng), l.maxOut)
			arrived[next] = c.step
			require.NoError(t, c.Submit(Request{ID: next, Prompt: prompt, MaxLen: len(prompt) + l.maxOut, Fixed: l.fixed}))
		}
		if c.Len() == 0 {
			return o
		}
		p := c.Plan()
		o.steps++
		o.preempted += len(p.Preempted)
		var results []Result
		for _, it := range p.Items {
			s := c.byID[it.ID]
			r := Result{ID: it.ID, Kept: it.Rows}
			o.computed += it.Rows
			if it.Phase == Decode {
				o.decoding++
			} else if s.preemptions > 0 {
				o.recomputed += it.Rows
			} else if it.Start == 0 {
				o.wait = max(o.wait, p.Step-arrived[it.ID])
			}
			if it.Last {
				r.Tokens = []int32{-1}
				r.Done = len(s.known)+1 >= ends[it.ID]
			}
			results = append(results, r)
		}
		require.NoError(t, c.Commit(results))
		require.Less(t, o.steps, 200_000)
	}
}

// plus adds another outcome of the same load.
func (o outcome) plus(x outcome) outcome {
	return outcome{
		computed: o.computed + x.computed, recomputed: o.recomputed + x.recomputed, preempted: o.preempted + x.preempted,
		steps: o.steps + x.steps, decoding: o.decoding + x.decoding, wait: max(o.wait, x.wait),
	}
}

// share is the part of all tokens computed that was computed again.
func (o outcome) share() float64 { return float64(o.recomputed) / float64(o.computed) }

func (o outcome) String() string {
	return fmt.Sprintf("recomputed %.3f, preempted %d, decoding %.1f, steps %d, longest wait %d",
		o.share(), o.preempted, o.decoding/float64(o.steps), o.steps, o.wait)
}

// TestSaturation: with memory for a part of the sequences, of outputs of any
// shape, everybody is served, and of all tokens computed less than one in twenty
// is computed again after a preemption. Admitted by what is known at the time
// alone, some of the loads compute more than one in ten again.
func TestSaturation(t *testing.T) {
	cfg := Config{Slots: 64, Pages: 160, SlotPages: 64, MaxBatchTokens: 1024, Chunk: 512}
	blind := cfg
	blind.Expect = -1
	for _, l := range []load{
		{name: "burst", requests: 96, flight: 96, maxOut: 1000, output: lognormal(200, 0.7)},
		{name: "burst of known length", requests: 96, flight: 96, maxOut: 400, fixed: true, output: lognormal(1e6, 0), thrashes: true},
		{name: "sustained", requests: 200, flight: 32, maxOut: 2000, output: lognormal(200, 0.7)},
		{name: "sustained, all long", requests: 100, flight: 32, maxOut: 1500, output: lognormal(1e6, 0), thrashes: true},
		{name: "sustained, two kinds", requests: 600, flight: 32, maxOut: 2000, thrashes: true, output: func(rng *rand.Rand) int {
			return pick(rng, 10, 10, 10, 1200)
		}},
		{name: "sustained, wide", requests: 200, flight: 32, maxOut: 3000, output: lognormal(150, 1.3)},
	} {
		var o, other outcome
		for seed := range uint64(2) {
			o = o.plus(l.run(t, cfg, seed))
			other = other.plus(l.run(t, blind, seed))
		}
		t.Logf("%s: %v; blind: %v", l.name, o, other)
		require.Less(t, o.share(), 0.05, l.name)
		if l.thrashes {
			require.Greater(t, other.share(), 0.1, l.name)
		}
	}
}
