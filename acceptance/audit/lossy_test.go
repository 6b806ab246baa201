package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// lossyRun is a run of a lossy rule.
func lossyRun(t *testing.T, rule string, p sample.Params) *running {
	t.Helper()
	return theWorld(t).run(t, setup{drafter: "mtp", k: 3, rule: rule, requests: 6, maxNew: 40, params: p})
}

// The audits check of lossy rules what can be: the tokens audit does not pass, and
// says why; counts and work do.
func TestLossyRules(t *testing.T) {
	for name, p := range map[string]sample.Params{
		"typical":                   {Temperature: 0.8, Seed: 3},
		"typical:epsilon=0.01":      {Temperature: 0.8, TopK: 40, Seed: 4},
		"threshold:single=0.1":      {},
		"threshold:top_n=3":         {Temperature: 0.7, Seed: 5},
		"threshold:single=1":        {RepetitionPenalty: 1.2},
		"typical:epsilon=1,delta=1": {},
	} {
		t.Run(name, func(t *testing.T) {
			run := lossyRun(t, name, p)
			for _, r := range run.records {
				require.True(t, r.Lossy)
				require.Equal(t, name, r.Rule)
			}
			r, err := audit.Tokens(t.Context(), run.Case, nil)
			require.NoError(t, err)
			require.Equal(t, audit.NotCheckable, r.Verdict, "%+v", r.Findings)
			require.Equal(t, "6 of 6 requests were decided by a lossy rule, which accepts what the target would not have said: their output has nothing that it must equal", r.Why)
			counts, err := audit.Counts(t.Context(), run.Case, nil)
			require.NoError(t, err)
			require.Equal(t, audit.Pass, counts.Verdict, "%+v", counts.Findings)
			require.Len(t, counts.Notes, 1)
			require.Contains(t, counts.Notes[0], "drafts that lossy rules accepted")
			work, err := audit.Work(t.Context(), run.Case, nil)
			require.NoError(t, err)
			require.Equal(t, audit.Pass, work.Verdict, "%+v", work.Findings)
		})
	}
}

// A run whose stamp was taken off, or whose decisions are not the rule's, fails.
func TestForgedLossyRun(t *testing.T) {
	run := lossyRun(t, "threshold:single=0.1", sample.Params{})
	unstamped := func(r *engine.Record) { r.Lossy = false }
	renamed := func(r *engine.Record) { r.Rule, r.Lossy = "greedy", false }
	for name, change := range map[string]func(*engine.Record){"stamp": unstamped, "name": renamed} {
		forged := &running{Case: &audit.Case{Run: run.Run, Requests: run.Requests, Lab: run.Lab}}
		for _, r := range run.records {
			c := *r
			change(&c)
			forged.records = append(forged.records, &c)
		}
		forged.stream()
		counts, err := audit.Counts(t.Context(), forged.Case, nil)
		require.NoError(t, err)
		require.Equal(t, audit.Fail, counts.Verdict, name)
		tokens, err := audit.Tokens(t.Context(), forged.Case, nil)
		require.NoError(t, err)
		require.NotEqual(t, audit.Pass, tokens.Verdict, name)
	}
	// A claim to be exact, or not lossy, is false.
	yes := true
	for _, claim := range []audit.Claim{{Exact: &yes, Lossy: true}, {}} {
		run.Claims = map[string]audit.Claim{"": claim}
		counts, err := audit.Counts(t.Context(), run.Case, nil)
		require.NoError(t, err)
		require.Equal(t, audit.Fail, counts.Verdict)
	}
}
