package acceptance

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
)

// verification is a decode record of k drafts of which some were accepted.
func verification(request string, step int64, k, accepted, emitted int) *engine.Record {
	return &engine.Record{
		Request: request, Step: step, SeqStep: int32(step), Phase: engine.Decode, Drafter: "mtp", Rule: "greedy",
		KPlanned: 4, KExecuted: int32(k), ProposedIDs: make([]int32, k), Accepted: engine.Accepted(accepted),
		RealAccepted: engine.Accepted(accepted), EmittedIDs: make([]int32, emitted),
		DraftNs: 10, VerifyNs: 80, TotalNs: 100,
	}
}

// Worked by hand: two requests, one of which drafts less than was planned, and
// one verification that a stop token cut.
func TestStatsByHand(t *testing.T) {
	var s Stats
	for _, r := range []*engine.Record{
		{Request: "a", Phase: engine.Prefill, PrefillTokens: 9, EmittedIDs: []int32{1}, NextKind: engine.NextSampled, Drafter: "mtp", TotalNs: 1000},
		verification("a", 1, 3, 3, 4),
		verification("a", 2, 3, 1, 2),
		verification("a", 3, 3, 0, 1),
		verification("a", 4, 1, 1, 1), // two tokens decided, one of them behind the stop token
		verification("b", 5, 0, 0, 1),
		verification("b", 6, 3, 2, 3),
	} {
		s.Add(r)
	}
	require.Equal(t, []int64{2, 2, 1, 1}, s.Histogram)
	require.Equal(t, []int64{5, 4, 4}, s.Reached) // with more than 0, 1, 2 drafts
	require.Equal(t, []int64{4, 2, 1}, s.Prefix)
	require.Equal(t, []int64{5, 3, 2}, s.Tried)
	got := s.Summary()
	require.Equal(t, Summary{
		Acceptance: Acceptance{
			Steps: 7, Verifications: 6, Drafted: 5, Proposed: 13, Accepted: 7, RealAccepted: 7, Emitted: 13,
			AcceptLength: 13. / 6, AcceptLengthMacro: (9./4 + 4./2) / 2, EmittedPerVerification: 12. / 6,
			AcceptLengthTokenWeighted: (9*(9./4) + 4*(4./2)) / 13,
			AcceptLengthPerToken:      (16. + 4 + 1 + 4 + 1 + 9) / 13,
			DraftAcceptRate:           7. / 13,
			AcceptanceByPosition:      []float64{4. / 5, 2. / 4, 1. / 4},
			Conditional:               []float64{4. / 5, 2. / 3, 1. / 2},
			Histogram:                 []int64{2, 2, 1, 1},
		},
		EngineSteps: 7, TotalSeconds: 1600e-9, DraftSeconds: 60e-9, VerifySeconds: 480e-9, DraftShare: 60. / 1600,
		DecodeStepMs: 100e-6, DecodeTokS: 12. / 600e-9,
	}, got)
}

// The sums of a real SGLang request (section 4.1 of the catalogue of faults that
// the audits follow): 43 verifications of 5 drafts, 63 accepted, 106 tokens.
func TestStatsOfKnownRequest(t *testing.T) {
	var s Stats
	left := 63
	for step := range 43 {
		a := min(5, left, 1+step%3)
		if step == 42 {
			a = min(5, left)
		}
		left -= a
		s.Add(verification("q", int64(step), 5, a, a+1))
	}
	require.Zero(t, left)
	sum := s.Summary()
	require.Equal(t, Sum[engine.Proposed](215), sum.Proposed)
	require.Equal(t, Sum[engine.Accepted](63), sum.Accepted)
	require.Equal(t, Sum[engine.Emitted](106), sum.Emitted)
	require.InDelta(t, 106./43, sum.AcceptLength, 1e-12)
	require.InDelta(t, 63./215, sum.DraftAcceptRate, 1e-12)
}

// Without any accepted draft the accept length is 1, not 0: the bonus is in it.
func TestStatsZeroAccept(t *testing.T) {
	var s Stats
	for i := range 10 {
		s.Add(verification("q", int64(i), 4, 0, 1))
	}
	sum := s.Summary()
	require.Equal(t, 1.0, sum.AcceptLength)
	require.Equal(t, []float64{0, 0, 0, 0}, sum.AcceptanceByPosition)
	require.Equal(t, []float64{0, 0, 0, 0}, sum.Conditional)
	require.Zero(t, sum.DraftAcceptRate)

	require.NotPanics(t, func() { sum = new(Stats).Summary() })
	text, err := json.Marshal(sum)
	require.NoError(t, err)
	require.NotContains(t, string(text), "null")
}

// The identities between the counts, and the rates by scanning, over random runs.
func TestStatsIdentities(t *testing.T) {
	for seed := range uint64(20) {
		records := fakeRun(seed, 2, 3, 60)
		var s Stats
		for _, r := range records {
			s.Add(r)
		}
		sum := s.Summary()
		h, ih, emitted := int64(0), int64(0), 0
		for i, n := range s.Histogram {
			h, ih = h+n, ih+int64(i)*n
		}
		for _, r := range records {
			emitted += len(r.EmittedIDs)
		}
		require.Equal(t, s.Verifications, h)
		require.Equal(t, int64(s.Accepted), ih)
		require.Equal(t, int64(s.AcceptLengths), s.Verifications+int64(s.Accepted))
		require.Equal(t, Sum[engine.Emitted](emitted), s.Emitted)
		for i := range sum.AcceptanceByPosition {
			offered, reached, accepted := 0, 0, 0
			for _, r := range records {
				if r.Phase != engine.Decode || int(r.KExecuted) <= i {
					continue
				}
				offered++
				if int(r.Accepted) >= i {
					reached++
				}
				if int(r.Accepted) > i {
					accepted++
				}
			}
			require.InDelta(t, float64(accepted)/float64(offered), sum.AcceptanceByPosition[i], 1e-15)
			require.InDelta(t, float64(accepted)/float64(reached), sum.Conditional[i], 1e-15)
		}
	}
}

// The durations of a step count once, those of drafting once for each drafter,
// whichever of its records comes first.
func TestStepTimes(t *testing.T) {
	record := func(request, drafter string, step, draftNs, totalNs int64) *engine.Record {
		r := verification(request, step, 1, 0, 1)
		r.Drafter, r.DraftNs, r.TotalNs = drafter, draftNs, totalNs
		return r
	}
	var s Stats
	for step := range int64(3) {
		s.Add(record("a", "none", step, 0, 100+step))
		s.Add(record("b", "mtp", step, 30, 100+step))
		s.Add(record("c", "mtp", step, 30, 100+step))
		s.Add(record("d", "ngram", step, 5, 100+step))
	}
	require.Equal(t, int64(3*35), s.times.DraftNs)
	require.Equal(t, int64(303), s.times.TotalNs)
	require.Equal(t, int64(240), s.times.VerifyNs)
	require.Equal(t, int64(3), s.Summary().EngineSteps)
	// Another engine, whose only step has the number of the last one.
	s.Add(record("e", "mtp", 2, 7, 500))
	require.Equal(t, int64(4), s.Summary().EngineSteps)
	require.Equal(t, int64(3*35+7), s.times.DraftNs)
}

// Engines number their sequences from 0: what was counted of one must not be taken
// off another's.
func TestStatsOverEngines(t *testing.T) {
	var s Stats
	for engineNo, preemptions := range [][]int32{{0, 1, 2}, {0, 0, 1}} {
		for step, p := range preemptions {
			r := verification([]string{"r0/q", "r1/q"}[engineNo], int64(step), 1, 0, 1)
			r.Sequence, r.Preemptions, r.Cached = 0, p, 64
			s.Add(r)
		}
	}
	require.Equal(t, int64(3), s.Preemptions)
	require.Equal(t, int64(128), s.CachedTokens)
}

func TestGroups(t *testing.T) {
	point, strategy := NewGroup(ByPoint), NewGroup(ByStrategy)
	forced := verification("sim/q", 0, 2, 2, 3)
	forced.Simulated, forced.RealAccepted = true, 1
	records := append(fakeRun(1, 2, 2, 10), verification("p9/q", 1, 2, 1, 2), forced)
	for _, r := range records {
		point.Add(r)
		strategy.Add(r)
	}
	require.Equal(t, []string{"p0.r0", "p1.r0", "p9", "sim"}, point.Order)
	require.Equal(t, []string{"mtp/greedy/k4", "simulated/mtp/greedy/k4"}, strategy.Order)
	var sum int64
	for _, name := range point.Order {
		sum += point.By[name].Steps
	}
	require.Equal(t, int64(len(records)), sum)
	require.False(t, strategy.By["mtp/greedy/k4"].Simulated)
	simulated := strategy.By["simulated/mtp/greedy/k4"].Summary()
	require.True(t, simulated.Simulated)
	require.Equal(t, Sum[engine.Accepted](2), simulated.Accepted)
	require.Equal(t, Sum[engine.Accepted](1), simulated.RealAccepted)
}

// What was written and read gives the figures of what was recorded.
func TestStatsFromDisk(t *testing.T) {
	records := fakeRun(8, 3, 3, 30)
	var direct, stored Stats
	for _, r := range records {
		direct.Add(r)
	}
	for _, r := range read(t, write(t, Meta{Run: "x"}, records)) {
		stored.Add(r)
	}
	require.Equal(t, direct.Summary(), stored.Summary())
}

func TestSummaryJSON(t *testing.T) {
	text, err := json.Marshal(new(Stats).Summary())
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	for name := range fields {
		require.Regexp(t, snake, name)
	}
	for _, name := range []string{"accept_length", "accept_length_macro", "acceptance_by_position", "acceptance_conditional", "histogram", "proposed", "accepted", "emitted", "simulated"} {
		require.True(t, slices.Contains(keys(fields), name), name)
	}
}

func keys(m map[string]any) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}
