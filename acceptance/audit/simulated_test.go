package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

const declared = "length=2.5"

func simulatedSetup(requests int) setup {
	return setup{drafter: "mtp", k: 3, rule: "greedy", simulate: declared, requests: requests, maxNew: 40, endless: true, params: sample.Params{Seed: 3}}
}

// The 8 % case in three forms, with the outputs of no concern: each is seen by the
// audit that can see it, and the evidence names the step arithmetic.
func TestEightPercent(t *testing.T) {
	w := theWorld(t)

	// (a) The run reports 8 % more than its records say.
	a := w.run(t, simulatedSetup(4)).copied()
	claim := claimFor(a.records)
	claim.AcceptLength *= 1.08
	a.Claims = map[string]audit.Claim{"": claim}
	r, err := audit.Counts(t.Context(), a.Case, nil)
	require.NoError(t, err)
	require.Equal(t, audit.Fail, r.Verdict)
	require.Len(t, r.Findings, 1)
	require.Contains(t, r.Why, "(+8.0 %)")
	require.Regexp(t, `\d+ steps of \d+ rows in all committed \d+ tokens`, r.Why)

	// (b) The realised length is 8 % above the declared one, and every
	// counter agrees with it.
	s := simulatedSetup(8)
	s.simulate = "length=2.7"
	b := w.run(t, s).copied()
	for _, q := range b.Requests {
		q.Simulation = declared
	}
	for _, r := range b.records {
		r.Simulation = declared
	}
	r, err = audit.Counts(t.Context(), b.Case, nil)
	require.NoError(t, err)
	require.Equal(t, audit.Fail, r.Verdict)
	require.Equal(t, "each forced length is the documented draw", r.Findings[0].Check)
	require.Regexp(t, `\d+ steps x \(k 3 \+ 1\) rows: \d+ tokens drawn for them \(2\.\d+ a step\), \d+ realised`, r.Why)
	require.Equal(t, 2.5, r.Figures.Simulations["length=2.5 at k 3"].Requested)

	// (c) Every simulated step does 8 % less than its rows need.
	c := w.run(t, simulatedSetup(4)).copied()
	for _, r := range c.records {
		if r.PrefillTokens == 0 {
			r.TargetWork.MACs -= r.TargetWork.MACs * 8 / 100
		}
	}
	r, err = audit.Work(t.Context(), c.Case, nil)
	require.NoError(t, err)
	require.Equal(t, audit.Fail, r.Verdict)
	require.Regexp(t, `\d+ steps x \(k 3 \+ 1\) rows = \d+ rows claimed, \d+ computed \(-8\.0 %\)`, r.Why)
	require.Empty(t, failing(t, c, "counts"))
	require.Empty(t, failing(t, c, "tokens"))
}

// claimFor is a true claim of a simulated run.
func claimFor(records []*engine.Record) audit.Claim {
	c := claimOf(records)
	c.Simulated = true
	return c
}

// What is wrong with a simulation is seen by the check that it is for.
func TestSimulatedSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, simulatedSetup(6))
	for _, name := range []string{"tokens", "counts", "work"} {
		require.Empty(t, failing(t, base.copied(), name), name)
	}
	b := base.copied()
	r := b.decodes(t, func(r *engine.Record) bool { return r.KExecuted == 3 && int(r.Accepted) < 3 })
	r.Simulated, r.Simulation = false, ""
	require.Contains(t, failing(t, b, "counts"), "what is simulated is what was asked for, and stamped")

	b = base.copied()
	for _, q := range b.Requests {
		q.Simulation = "length=3.5"
	}
	require.Contains(t, failing(t, b, "counts"), "each forced length is the documented draw")
	require.Contains(t, failing(t, b, "counts"), "forced lengths are among the declared ones")

	b = base.copied()
	for _, q := range b.Requests {
		q.Simulation = "length=9"
	}
	require.Contains(t, failing(t, b, "counts"), "what is simulated is what was asked for, and stamped")

	b = base.copied()
	r = b.decodes(t, func(r *engine.Record) bool { return r.KExecuted == 3 && r.PrefillTokens == 0 && r.BatchRows > 8 })
	b.Requests[r.Request].K = 4
	require.Contains(t, failing(t, b, "counts"), "a step plans the k that was asked for")

	b = base.copied()
	last := b.records[len(b.records)-1]
	last.NextID ^= 1
	last.EmittedIDs[len(last.EmittedIDs)-1] = last.NextID
	received := b.Requests[last.Request].Received
	received[len(received)-1] = last.NextID
	if len(last.EmittedIDs) == int(last.Accepted)+1 {
		require.Contains(t, failing(t, b, "tokens"), "token after a forced run is the target's choice there")
	}
}

// No report of a run with simulation says that its output is plain decoding's.
func TestSimulatedWording(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, simulatedSetup(4))
	for name, f := range audits {
		for _, broken := range []bool{false, true} {
			b := base.copied()
			if broken {
				for _, r := range b.records {
					r.TargetWork.MACs--
					r.Hashes = append(r.Hashes[:0:0], make([]uint64, len(r.Hashes))...)
				}
				for _, q := range b.Requests {
					q.Simulation = "length=3.2"
				}
			}
			r, err := f(t.Context(), b.Case, nil)
			require.NoError(t, err)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			for _, word := range []string{"exact", "lossless"} {
				require.NotContains(t, strings.ToLower(string(text)), word, name)
			}
		}
	}
}

// Reports are the same each time.
func TestDeterministic(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, simulatedSetup(4))
	for name, f := range audits {
		var texts []string
		for range 2 {
			b := base.copied()
			for i := range b.records {
				b.records[i].TargetWork.MACs--
				b.records[i].Batch++
			}
			r, err := f(t.Context(), b.Case, nil)
			require.NoError(t, err)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			texts = append(texts, string(text))
		}
		require.Equal(t, texts[0], texts[1], name)
	}
}

// Step times that grow with what a step accepts are seen, in the presence of a
// machine that drifts; drift alone is not.
func TestFlatSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, setup{drafter: "mtp", k: 3, rule: "greedy", simulate: "length=2.5", requests: 1, maxNew: 400, endless: true, params: sample.Params{Seed: 3}, engine: engine.Config{MaxSequences: 1}})
	// A step of the made-up times drafts no faster than this machine, however
	// slow it is today.
	step := int64(1_000_000)
	for _, r := range base.records {
		step = max(step, 10*r.DraftNs)
	}
	for _, slope := range []int64{0, 8} { // per cent of a step for each accepted draft
		b := base.copied()
		for i, r := range b.records {
			drift := step + step/10_000*3*int64(i) + step/50*int64(i%3)
			r.TotalNs = drift + drift*slope/100*int64(r.Accepted)
			r.DraftNs, r.VerifyNs = r.TotalNs/10, r.TotalNs*8/10
		}
		got := failing(t, b, "work")
		if slope == 0 {
			require.Empty(t, got)
		} else {
			require.Equal(t, []string{"step time does not depend on accept length"}, got)
		}
	}
}
