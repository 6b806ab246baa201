package experiments

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
)

// sampledSession has the MTP strategy with the argmax, and with drawn drafts.
func sampledSession(t *testing.T, maxNew int, sampling Sampling) *session {
	t.Helper()
	s := simulatedSession(t, maxNew)
	s.cfg.Sampling = sampling
	s.cfg.Strategies = []Strategy{
		{Drafter: "mtp", K: []int{3}},
		{Drafter: "mtp", K: []int{3}, Config: map[string]any{"sample": true}},
	}
	return s
}

// At temperature 1 drawn drafts are accepted at least as often as the argmax
// under every rule that samples, and more often under the coupled rule, whose
// output stays plain decoding's.
func TestSampledDraftsAreAcceptedMore(t *testing.T) {
	for _, rule := range []string{"rejection", "block", "coupled"} {
		var length [2]float64
		s := sampledSession(t, 110, Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: 1})
		for i := range length {
			steps, sum := 0, 0
			records, traces := s.records(t, Point{Strategy: i, Drafter: "mtp", K: 3, Rule: rule, Concurrency: 3})
			for _, r := range records {
				if r.KExecuted == 3 {
					steps++
					sum += int(r.Accepted.Length())
				}
			}
			length[i] = float64(sum) / float64(steps)
			if rule == "coupled" && i == 1 {
				_, plain := s.records(t, Point{Strategy: -1, Drafter: "none", Rule: rule, Concurrency: 1})
				for id := range plain {
					require.Equal(t, plain[id].Tokens, traces[id].Tokens)
					require.Equal(t, plain[id].Hashes, traces[id].Hashes)
				}
			}
		}
		t.Logf("%s: accept length %.3f with the argmax, %.3f with drawn drafts", rule, length[0], length[1])
		require.GreaterOrEqual(t, length[1], length[0], rule)
	}
}

// Drawn drafts and what became of them are the same alone and in a batch, for
// a greedy request among those that sample, with different numbers of drafts.
func TestSampledDraftsAloneAndInABatch(t *testing.T) {
	s := sampledSession(t, 40, Sampling{Temperature: 1, TopP: 0.98, RepetitionPenalty: 1.1, Seed: 3})
	steps := func(rule string, concurrency int) map[string][]string {
		out := map[string][]string{}
		records, _ := s.records(t, Point{Strategy: 1, Drafter: "mtp", K: 3, Rule: rule, Concurrency: concurrency}, func(i int, r *engine.Request) {
			if i == 1 {
				r.Params.Temperature = 0
			}
			r.K = 3 - i
		})
		for _, r := range records {
			if r.Phase == engine.Decode {
				out[r.Request] = append(out[r.Request], fmt.Sprint(r.Position, r.ProposedIDs, r.Accepted, r.NextID, r.Hashes))
			}
		}
		return out
	}
	for _, rule := range []string{"rejection", "coupled"} {
		alone := steps(rule, 1)
		require.Len(t, alone, len(s.prompts))
		for _, concurrency := range []int{2, 3} {
			require.Equal(t, alone, steps(rule, concurrency))
		}
	}
}
