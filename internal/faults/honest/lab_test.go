package honest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/internal/faults/honest"
	"exacta.dev/exacta/internal/faults/trial"
)

func TestRun(t *testing.T) {
	m, err := trial.Open(registry.Embedded)
	require.NoError(t, err)
	defer m.Close()
	memo := honest.NewMemo()
	lab, closeLab := honest.Lab(m, memo)
	defer closeLab()
	for _, s := range []trial.Setup{
		{Drafter: "mtp", K: 3}, {Drafter: "ngram", K: 3, Stops: true}, {Drafter: "mtp", K: 4, Simulation: "length=2.6", Requests: 6},
		{Drafter: "known", K: 4, Simulation: "length=2.6"},
		{Drafter: "mtp", K: 3, Shared: 70, PrefixCache: true, Concurrency: 2},
		{Drafter: "mtp", K: 3, TightPages: true, Requests: 8, MaxNew: 60},
	} {
		start := time.Now()
		reqs := m.Requests(s, 1)
		plain, err := honest.Reference(t.Context(), lab, reqs)
		require.NoError(t, err)
		ref := time.Since(start)
		start = time.Now()
		if s.Stops {
			require.NoError(t, honest.Stop(t.Context(), lab, reqs, 1))
		}
		res, err := m.Run(s, reqs, plain, trial.Wiring{})
		require.NoError(t, err)
		require.Empty(t, res.Err)
		ran := time.Since(start)
		start = time.Now()
		require.NoError(t, lab.Again(t.Context(), res.Requests, discard))
		pre, cached := int32(0), int32(0)
		for _, r := range res.Records {
			pre, cached = max(pre, r.Preemptions), max(cached, r.Cached)
		}
		t.Logf("%v: reference %v, run %v, again %v; %d records, preempted %d cached %d %+v", s, ref, ran, time.Since(start), len(res.Records), pre, cached, res.Claim)
		for i, q := range res.Requests {
			if s.Simulation == "" || s.Drafter == trial.Known {
				if !s.Stops {
					require.Equal(t, plain[q.ID], q.Received, "request %d", i)
				}
			}
			t.Log(len(q.Prompt), len(q.Received), q.Finish)
		}
	}
}
