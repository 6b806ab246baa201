package acceptance

import (
	"math/rand/v2"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// timed is a verification of a step without prefill.
func timed(request string, step int64, k, accepted, emitted int, draft, verify, total int64) *engine.Record {
	r := verification(request, step, k, accepted, emitted)
	r.DraftNs, r.VerifyNs, r.TotalNs = draft, verify, total
	return r
}

// Worked by hand: a plain step takes 1 ms; a speculative one 0.2 + 1.2 ms and 0.1
// ms of neither, and yields 3 and 2 tokens, of the second of which 1 is cut.
func TestSpeedupByHand(t *testing.T) {
	g := NewGroup(ByPooledPoint)
	for step := range int64(4) {
		g.Add(timed("plain.greedy.c1.r0/q", step, 0, 0, 1, 0, 900_000, 1_000_000))
	}
	g.Add(timed("0-mtp.k2.greedy.c1.r0/q", 4, 2, 2, 3, 200_000, 1_200_000, 1_500_000))
	g.Add(timed("0-mtp.k2.greedy.c1.r1/q", 5, 2, 1, 1, 200_000, 1_200_000, 1_500_000))
	g.Add(timed("0-mtp.k2.greedy.c9.r0/q", 6, 2, 1, 2, 1, 2, 3))
	got := Speedups(g)
	require.Len(t, got, 2)
	s := got[0]
	require.InDelta(t, 2.5/1.4, s.Expected, 1e-12)
	require.InDelta(t, 2/1.5, s.Measured, 1e-12) // 4 tokens in 3 ms
	require.InDelta(t, 1.4/1.5, s.Overhead, 1e-12)
	require.InDelta(t, 2/2.5, s.Cut, 1e-12)
	require.InDelta(t, 0, s.Unexplained, 1e-12)
	require.Equal(t, 1.0, s.Occupancy)
	s.Expected, s.Measured, s.Overhead, s.Cut, s.Unexplained = 0, 0, 0, 0, 0
	require.Equal(t, Speedup{
		Point: "0-mtp.k2.greedy.c1", Plain: "plain.greedy.c1", Concurrency: 1, AcceptLength: 2.5, Width: 3,
		PlainStepMs: 1, DraftStepMs: 0.2, VerifyStepMs: 1.2, StepMs: 1.5, Occupancy: 1,
	}, s)
	require.Equal(t, Speedup{Point: "0-mtp.k2.greedy.c9", Concurrency: 9, Why: "the run has no plain point at this concurrency"}, got[1])
}

// The factors multiply to what was measured, over random runs; the plain point of
// the own rule comes first.
func TestSpeedupIdentity(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for range 50 {
		g := NewGroup(ByPooledPoint)
		step := int64(0)
		for _, point := range []string{"plain.coupled.c2.r0", "plain.greedy.c2.r0", "0-mtp.k3.greedy.c2.r0", "1-mtp.k3.rejection.c2.r0"} {
			for range 20 {
				total := 1000 + r.Int64N(1000)
				draft, verify := r.Int64N(400), 300+r.Int64N(300)
				prefill := r.Int32N(5) / 4
				for _, q := range []string{"/a", "/b"}[r.IntN(2):] {
					k := r.IntN(4)
					if point[0] == 'p' {
						k, draft = 0, 0
					}
					rec := timed(point+q, step, k, r.IntN(k+1), 1, draft, verify, total)
					rec.PrefillTokens, rec.Simulated, rec.Simulation = prefill, point[0] == '1', "length=2"
					g.Add(rec)
				}
				step++
			}
		}
		all := Speedups(g)
		require.Len(t, all, 2)
		require.Equal(t, "plain.greedy.c2", all[0].Plain)
		require.Equal(t, "plain.coupled.c2", all[1].Plain, "the first, as there is none of its rule")
		require.False(t, all[0].Simulated)
		require.True(t, all[1].Simulated)
		for _, s := range all {
			require.InEpsilon(t, s.Measured, s.Expected*s.Overhead*s.Occupancy*s.Cut*(1+s.Unexplained), 1e-9)
			own, plain := g.By[s.Point].Summary(), g.By[s.Plain].Summary()
			require.Equal(t, own.AcceptLength, s.AcceptLength)
			require.Equal(t, own.DecodeTokS/plain.DecodeTokS, s.Measured)
			require.Equal(t, own.DecodeStepMs, s.StepMs)
		}
	}
}

// Without what a speed-up is made of, there is none, and why.
func TestSpeedupOfLittle(t *testing.T) {
	var none, point, plain Stats
	point.Add(timed("p/q", 0, 1, 1, 2, 1, 2, 3))
	plain.Add(timed("p/q", 0, 0, 0, 1, 0, 2, 3))
	require.Equal(t, Speedup{Why: "the plain point has no step without prefill"}, NewSpeedup(&point, &none))
	require.Equal(t, Speedup{Why: "the point has no step without prefill"}, NewSpeedup(&none, &plain))
	require.Empty(t, NewSpeedup(&point, &plain).Why)
	plain.Simulated = true
	require.Equal(t, "the plain point is simulated", NewSpeedup(&point, &plain).Why)
	require.Empty(t, Speedups(NewGroup(ByPooledPoint)))
}
