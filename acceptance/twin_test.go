package acceptance

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// wildRun makes records of which every figure of a Summary is made: steps that
// mix prefill and verifications of several drafters, cut tokens, preemptions,
// prefix hits, simulated acceptance, several engines.
func wildRun(r *rand.Rand) []*engine.Record {
	var out []*engine.Record
	for e := range 1 + r.IntN(3) {
		requests := 1 + r.IntN(5)
		seqStep, preemptions := make([]int32, requests), make([]int32, requests)
		for step := range 1 + r.IntN(30) {
			draftNs := map[string]int64{"mtp": r.Int64N(100), "ngram": r.Int64N(100), "none": 0}
			total, verify := 1000+r.Int64N(1<<40), r.Int64N(1000)
			var batch []*engine.Record
			prefill := int32(0)
			for q := range requests {
				if r.IntN(4) == 0 {
					continue
				}
				preemptions[q] += int32(r.IntN(8) / 7)
				rec := &engine.Record{
					Request: fmt.Sprintf("p%d.r0/q%d", e, q), Step: int64(step), SeqStep: seqStep[q], Phase: engine.Decode,
					Preemptions: preemptions[q], Cached: int32(64 * r.IntN(3)), VerifyNs: verify, TotalNs: total,
				}
				seqStep[q]++
				rec.Drafter = []string{"mtp", "ngram", "none"}[r.IntN(3)]
				rec.DraftNs = draftNs[rec.Drafter]
				if r.IntN(6) == 0 {
					rec.Phase, rec.Rows = engine.Prefill, 1+r.Int32N(9)
					prefill += rec.Rows
					rec.EmittedIDs = make([]int32, r.IntN(2))
				} else {
					wildVerdict(r, rec)
				}
				batch = append(batch, rec)
			}
			for _, rec := range batch {
				rec.PrefillTokens = prefill
			}
			out = append(out, batch...)
		}
	}
	return out
}

func wildVerdict(r *rand.Rand, rec *engine.Record) {
	k := r.IntN(9)
	rec.KExecuted = int32(k)
	rec.Accepted = engine.Accepted(r.IntN(k + 1))
	rec.RealAccepted = rec.Accepted
	if r.IntN(50) == 0 {
		rec.Simulated, rec.Simulation, rec.RealAccepted = true, "length=2", engine.Accepted(r.IntN(k+1))
	}
	rec.EmittedIDs = make([]int32, rec.Accepted.Length())
	if r.IntN(10) == 0 {
		rec.EmittedIDs = rec.EmittedIDs[:r.IntN(len(rec.EmittedIDs))]
	}
}

// sum, filter and per are all that the twin computes with.
func sum(records []*engine.Record, f func(*engine.Record) int) int {
	n := 0
	for _, r := range records {
		n += f(r)
	}
	return n
}

func filter(records []*engine.Record, f func(*engine.Record) bool) []*engine.Record {
	var out []*engine.Record
	for _, r := range records {
		if f(r) {
			out = append(out, r)
		}
	}
	return out
}

func per(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// twin computes a Summary by the definitions of SCHEMA.md, with a pass over all
// records for each figure.
func twin(records []*engine.Record) Summary {
	decode := filter(records, func(r *engine.Record) bool { return r.Phase == engine.Decode })
	accepted := func(r *engine.Record) int { return int(r.Accepted) }
	emitted := func(r *engine.Record) int { return len(r.EmittedIDs) }
	proposed := sum(decode, func(r *engine.Record) int { return int(r.KExecuted) })
	lengths := sum(decode, accepted) + len(decode)
	s := Summary{Acceptance: Acceptance{
		Steps: int64(len(records)), Verifications: int64(len(decode)),
		Drafted:  int64(len(filter(decode, func(r *engine.Record) bool { return r.KExecuted > 0 }))),
		Proposed: Sum[engine.Proposed](proposed), Accepted: Sum[engine.Accepted](sum(decode, accepted)),
		RealAccepted: Sum[engine.Accepted](sum(decode, func(r *engine.Record) int { return int(r.RealAccepted) })),
		Emitted:      Sum[engine.Emitted](sum(records, emitted)),
		AcceptLength: per(lengths, len(decode)), DraftAcceptRate: per(sum(decode, accepted), proposed),
		AcceptLengthPerToken:   per(sum(decode, func(r *engine.Record) int { return (accepted(r) + 1) * (accepted(r) + 1) }), lengths),
		EmittedPerVerification: per(sum(decode, emitted), len(decode)),
		CachedTokens:           int64(sum(filter(records, func(r *engine.Record) bool { return r.SeqStep == 0 }), func(r *engine.Record) int { return int(r.Cached) })),
	}}
	s.AcceptLengthMacro, s.AcceptLengthTokenWeighted = twinMeans(decode)
	if i := slices.IndexFunc(records, func(r *engine.Record) bool { return r.Simulated }); i >= 0 {
		s.Simulated, s.Simulation = true, records[i].Simulation
	}
	last := map[string]int32{}
	most := -1
	for _, r := range records {
		last[r.Request] = r.Preemptions
	}
	for _, n := range last {
		s.Preemptions += int64(n)
	}
	for _, r := range decode {
		most = max(most, accepted(r))
	}
	s.Histogram = make([]int64, most+1)
	for i := range s.Histogram {
		s.Histogram[i] = int64(len(filter(decode, func(r *engine.Record) bool { return accepted(r) == i })))
	}
	s.AcceptanceByPosition, s.Conditional = []float64{}, []float64{}
	for i := 0; ; i++ {
		longer := filter(decode, func(r *engine.Record) bool { return int(r.KExecuted) > i })
		if len(longer) == 0 {
			break
		}
		all := len(filter(longer, func(r *engine.Record) bool { return accepted(r) > i }))
		before := len(filter(longer, func(r *engine.Record) bool { return accepted(r) >= i }))
		s.AcceptanceByPosition = append(s.AcceptanceByPosition, per(all, len(longer)))
		s.Conditional = append(s.Conditional, per(all, before))
	}
	twinTimes(&s, records)
	return s
}

// twinMeans are the means over requests, each weighing the same, or as much as
// its tokens.
func twinMeans(decode []*engine.Record) (macro, weighted float64) {
	requests := map[string]bool{}
	for _, r := range decode {
		requests[r.Request] = true
	}
	tokens := 0
	for _, id := range slices.Sorted(maps.Keys(requests)) {
		own := filter(decode, func(r *engine.Record) bool { return r.Request == id })
		n := sum(own, func(r *engine.Record) int { return int(r.Accepted) + 1 })
		macro += per(n, len(own))
		weighted += float64(float64(n) * per(n, len(own)))
		tokens += n
	}
	if len(requests) == 0 {
		return 0, 0
	}
	return macro / float64(len(requests)), weighted / float64(tokens)
}

// twinTimes knows a step by its duration: a random run has no two alike.
func twinTimes(s *Summary, records []*engine.Record) {
	steps := map[int64][]*engine.Record{}
	for _, r := range records {
		steps[r.TotalNs] = append(steps[r.TotalNs], r)
	}
	total, draft, verify, pure, pureNs, tokens := 0, 0, 0, 0, 0, 0
	for ns, step := range steps {
		total += int(ns)
		verify += int(step[0].VerifyNs)
		drafters := map[string]int{}
		for _, r := range step {
			drafters[r.Drafter] = int(r.DraftNs)
		}
		for _, d := range drafters {
			draft += d
		}
		if step[0].PrefillTokens == 0 {
			pure++
			pureNs += int(ns)
			tokens += sum(step, func(r *engine.Record) int { return len(r.EmittedIDs) })
		}
	}
	s.EngineSteps, s.TotalSeconds, s.DraftSeconds, s.VerifySeconds = int64(len(steps)), float64(total)/1e9, float64(draft)/1e9, float64(verify)/1e9
	s.DraftShare, s.DecodeStepMs, s.DecodeTokS = per(draft, total), per(pureNs, pure)/1e6, 1e9*per(tokens, pureNs)
}

// Stats in one pass is the twin in many, to the last bit.
func TestStatsAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 0))
	figures := map[string]bool{}
	for range 300 {
		records := wildRun(r)
		var s Stats
		for _, rec := range records {
			s.Add(rec)
		}
		want := twin(records)
		require.Equal(t, want, s.Summary())
		figures["simulated"] = figures["simulated"] || want.Simulated && want.RealAccepted != want.Accepted
		figures["preempted"] = figures["preempted"] || want.Preemptions > 0
		figures["cut"] = figures["cut"] || want.EmittedPerVerification < want.AcceptLength
		figures["weights"] = figures["weights"] || math.Abs(want.AcceptLength-want.AcceptLengthMacro) > 0.1
		figures["long outputs"] = figures["long outputs"] || math.Abs(want.AcceptLengthTokenWeighted-want.AcceptLengthMacro) > 0.1
		figures["mixed"] = figures["mixed"] || want.DecodeStepMs > 0 && want.EngineSteps > 3
	}
	require.Len(t, figures, 6)
	for name, seen := range figures {
		require.True(t, seen, "no random run was %s", name)
	}
}
