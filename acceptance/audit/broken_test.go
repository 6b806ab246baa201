package audit_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// copied returns a case whose records and requests can be changed.
func (c *running) copied() *running {
	out := &running{Case: &audit.Case{}}
	*out.Case = audit.Case{Run: c.Run, Requests: map[string]*audit.Request{}, Claims: c.Claims, Lab: c.Lab, Replay: audit.ReplayForced}
	for id, r := range c.Requests {
		q := *r
		q.Received = slices.Clone(r.Received)
		out.Requests[id] = &q
	}
	for _, r := range c.records {
		q := *r
		q.ProposedIDs, q.TargetIDs, q.EmittedIDs = slices.Clone(r.ProposedIDs), slices.Clone(r.TargetIDs), slices.Clone(r.EmittedIDs)
		q.Gaps, q.Hashes = slices.Clone(r.Gaps), slices.Clone(r.Hashes)
		out.records = append(out.records, &q)
	}
	out.stream()
	return out
}

// failing returns the names of the checks that failed.
func failing(t testing.TB, c *running, name string) []string {
	t.Helper()
	r, err := audits[name](t.Context(), c.Case, nil)
	require.NoError(t, err)
	require.Equal(t, len(r.Findings) > 0, r.Verdict == audit.Fail)
	out := []string{}
	for _, f := range r.Findings {
		require.NotEmpty(t, f.Why)
		require.Positive(t, f.Times)
		out = append(out, f.Check)
	}
	slices.Sort(out)
	return out
}

// decodes returns the i-th decode record that satisfies a condition.
func (c *running) decodes(t testing.TB, ok func(r *engine.Record) bool) *engine.Record {
	t.Helper()
	for _, r := range c.records {
		if r.Phase == engine.Decode && ok(r) {
			return r
		}
	}
	require.Fail(t, "no such record")
	return nil
}

func partial(r *engine.Record) bool { return r.Accepted > 0 && int32(r.Accepted) < r.KExecuted }
func whole(r *engine.Record) bool   { return r.KExecuted > 0 && int32(r.Accepted) == r.KExecuted }
func any_(*engine.Record) bool      { return true }

// Each change of a record or request is seen by the check that it is for, and by
// no other than those that it must break too.
func TestCountsSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, setup{drafter: "mtp", k: 3, rule: "greedy", requests: 4, maxNew: 30, endless: true})
	require.Empty(t, failing(t, base.copied(), "counts"))
	for _, c := range []struct {
		name   string
		change func(c *running)
		want   []string
	}{
		{"a gap is no number", func(c *running) { c.records[9].Gaps[0] = float32(math.NaN()) }, []string{"logit gaps are numbers"}},
		{"ranks differ", func(c *running) { c.records[9].RankHashes = []uint64{1, 2} }, []string{"all ranks decided the same"}},
		{"kind", func(c *running) { c.decodes(t, partial).NextKind = engine.NextBonus }, []string{"next_kind fits accepted and k"}},
		{"a hash less", func(c *running) { r := c.decodes(t, whole); r.Hashes = r.Hashes[:len(r.Hashes)-1] }, []string{"rows, hashes and gaps are the drafts + 1"}},
		{"forced differs", func(c *running) { c.decodes(t, partial).ForcedAccepted++ }, []string{"real and forced outcome are equal unless simulated"}},
		{"steps without numbers", func(c *running) {
			for _, r := range c.records {
				r.Step = 0
			}
		}, []string{"records of a request are numbered, of one strategy and rule"}},
		{"a step number", func(c *running) { c.records[len(c.records)-1].SeqStep++ }, []string{"records of a request are numbered, of one strategy and rule"}},
		{"another rule", func(c *running) { c.records[9].Rule = "coupled" }, []string{"records of a request are numbered, of one strategy and rule"}},
		{"batch", func(c *running) { c.records[len(c.records)-1].Batch++ }, []string{"batch, rows and prefill tokens of a step are its records' sums"}},
		{"more drafts than planned", func(c *running) { c.decodes(t, whole).KPlanned-- }, []string{"a step plans the k that was asked for", "accepted <= k executed <= drafts <= k planned <= k asked", "drafts are what the strategy proposes alone"}},
		{"a proposed id less", func(c *running) { c.decodes(t, any_).TreeNodes++ }, []string{"accepted <= k executed <= drafts <= k planned <= k asked", "proposed ids are the drafts, k executed of them on the longest path", "rows, hashes and gaps are the drafts + 1"}},
		{"another draft", func(c *running) {
			r := c.decodes(t, func(r *engine.Record) bool { return partial(r) && int32(r.Accepted)+1 < r.KExecuted })
			r.ProposedIDs[r.KExecuted-1] ^= 1
		}, []string{"drafts are what the strategy proposes alone"}},
		{"stopped too early", func(c *running) {
			r := c.decodes(t, partial)
			r.ProposedIDs[r.Accepted] = r.TargetIDs[r.Accepted]
		}, []string{"accepted is the longest run of drafts that equal the target's choices", "drafts are what the strategy proposes alone"}},
		{"received otherwise", func(c *running) { c.Requests["q1"].Received[3] ^= 1 }, []string{"sum of emitted is what the client received"}},
		{"received less", func(c *running) { r := c.Requests["q1"]; r.Received = r.Received[:len(r.Received)-1] }, []string{"sum of emitted is what the client received"}},
		{"stopped for nothing", func(c *running) { q := c.Requests["q1"]; q.Finish, q.IgnoreStop = engine.FinishStop, false }, nil},
		{"never ended", func(c *running) { c.Requests["q1"].Ended = false }, []string{"every request has records, and an end"}},
		{"nobody asked", func(c *running) { delete(c.Requests, "q1") }, []string{"a prompt, or a preempted sequence, is read to its known tokens", "every request has records, and an end"}},
		{"no record", func(c *running) { c.Requests["x"] = &audit.Request{ID: "x", Ended: true} }, []string{"every request has records, and an end"}},
		{"over the limit", func(c *running) { c.Requests["q2"].MaxNew = 20 }, nil},
		{"a stop token inside", func(c *running) { q := c.Requests["q2"]; q.Stop, q.IgnoreStop = q.Received[10:11], false }, nil},
		{"a claim 8 % high", func(c *running) {
			c.Claims = map[string]audit.Claim{"": claimOf(c.records)}
			q := c.Claims[""]
			q.AcceptLength *= 1.08
			c.Claims[""] = q
		}, []string{"figures that the run reports are those of its records"}},
		{"a cache that nobody asked for", func(c *running) { c.Uncached = true; c.records[0].Cached = 5 }, []string{"positions advance by what was committed", "prompts are read whole where no prefix cache was asked for"}},
		{"a step left out", func(c *running) { c.records[len(c.records)-1].Step++ }, []string{"steps are numbered without a gap"}},
		{"narrower than asked", func(c *running) {
			for _, q := range c.Requests {
				q.K = 4
			}
		}, []string{"a step plans the k that was asked for"}},
		{"a true claim", func(c *running) { c.Claims = map[string]audit.Claim{"": claimOf(c.records)} }, []string{}},
		{"hidden simulation", func(c *running) {
			r := c.decodes(t, any_)
			r.Simulated, r.Simulation = true, "length=2"
		}, []string{"what is simulated is what was asked for, and stamped"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := base.copied()
			c.change(b)
			got := failing(t, b, "counts")
			if c.want == nil {
				require.Contains(t, got, "output ends at the first stop token or limit")
				return
			}
			require.Equal(t, c.want, got)
		})
	}
}

// claimOf is what a run of these records may report.
func claimOf(records []*engine.Record) audit.Claim {
	var c audit.Claim
	var lengths, steps float64
	reached, prefix := make([]float64, 3), make([]float64, 3)
	for _, r := range records {
		c.Tokens += int64(len(r.EmittedIDs))
		if r.Phase != engine.Decode {
			continue
		}
		steps++
		lengths += float64(r.Accepted.Length())
		for i := range int(r.KExecuted) {
			reached[i]++
			if int(r.Accepted) > i {
				prefix[i]++
			}
		}
	}
	c.AcceptLength = lengths / steps
	for i := range reached {
		c.AcceptanceByPosition = append(c.AcceptanceByPosition, prefix[i]/reached[i])
	}
	return c
}

// A token or a row that is not the target's is seen, and told in full.
func TestTokensSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, setup{drafter: "mtp", k: 3, rule: "greedy", requests: 4, maxNew: 30, endless: true})
	require.Empty(t, failing(t, base.copied(), "tokens"))

	b := base.copied()
	r := b.decodes(t, partial)
	r.Hashes[0]++
	require.Equal(t, []string{"logits hash under teacher forcing"}, failing(t, b, "tokens"))

	b = base.copied()
	r = b.decodes(t, partial)
	b.Requests[r.Request].Received[5] ^= 1
	require.Contains(t, failing(t, b, "tokens"), "received tokens are the recorded ones")

	// The same token swapped in record and output: everything after it is
	// conditioned on it.
	b = base.copied()
	last := b.records[len(b.records)-1]
	q := b.Requests[last.Request]
	n := len(q.Received)
	q.Received[n-1] ^= 1
	if i := len(last.EmittedIDs) - 1; i < int(last.Accepted) {
		last.ProposedIDs[i] ^= 1
		last.EmittedIDs[i] ^= 1
	} else {
		last.NextID ^= 1
		last.EmittedIDs[i] ^= 1
	}
	report, err := audit.Tokens(t.Context(), b.Case, nil)
	require.NoError(t, err)
	require.Equal(t, audit.Fail, report.Verdict)
	require.Equal(t, "token under teacher forcing", report.Findings[0].Check)
	require.Contains(t, report.Why, "the target's choice is")
	require.Contains(t, report.Why, "gap")
	require.Contains(t, report.Why, "the float64 oracle has")
	require.Equal(t, last.Step, report.Findings[0].Step)

	b = base.copied()
	b.decodes(t, whole).Gaps[0]++
	require.Equal(t, []string{"logits hash under teacher forcing"}, failing(t, b, "tokens"))

	b = base.copied()
	r = b.decodes(t, whole)
	r.Hashes = r.Hashes[:1]
	require.Contains(t, failing(t, b, "tokens"), "every committed token has its logits row")

	b = base.copied()
	b.Replay = audit.ReplayBoth
	require.Empty(t, failing(t, b, "tokens"))
	b.records[len(b.records)-1].Hashes[0]++
	require.Contains(t, failing(t, b, "tokens"), "token and logits hash under plain replay")
}

// Sampled runs are repeated and calibrated.
func TestSampledSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, setup{drafter: "mtp", k: 3, rule: "rejection", requests: 4, maxNew: 30, endless: true, params: sample.Params{Temperature: 1}})
	require.Empty(t, failing(t, base.copied(), "tokens"))
	b := base.copied()
	r := b.decodes(t, partial)
	r.RealAccepted--
	require.Equal(t, []string{"drafts, decisions and logits repeat when the request runs alone"}, failing(t, b, "tokens"))
	b = base.copied()
	r = b.decodes(t, func(r *engine.Record) bool { return partial(r) && int32(r.Accepted)+1 < r.KExecuted })
	r.Hashes[r.KExecuted]++ // of a rejected row, which teacher forcing does not see
	require.Equal(t, []string{"drafts, decisions and logits repeat when the request runs alone"}, failing(t, b, "tokens"))
}

// Counters that are not those of the claimed widths are seen, with the arithmetic.
func TestWorkSees(t *testing.T) {
	w := theWorld(t)
	base := w.run(t, setup{drafter: "mtp", k: 3, rule: "greedy", requests: 4, maxNew: 30, endless: true})
	require.Empty(t, failing(t, base.copied(), "work"))
	all := func(c *running, of *engine.Record, change func(r *engine.Record)) {
		for _, r := range c.records {
			if r.Step == of.Step {
				change(r)
			}
		}
	}
	const target = "the target's pass executed the rows that the records claim"
	for _, c := range []struct {
		name   string
		change func(c *running, r *engine.Record)
		want   []string
	}{
		{"multiply-adds", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.TargetWork.MACs-- }) }, []string{target}},
		{"keys", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.TargetWork.KVTokens++ }) }, []string{target}},
		{"logits rows", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.TargetWork.LogitRows-- }) }, []string{target}},
		{"weights", func(c *running, r *engine.Record) {
			all(c, r, func(r *engine.Record) { r.TargetWork.WeightBytes /= 2 })
		}, []string{"each pass read every weight matrix at least once"}},
		{"drafting", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.DraftWork.MACs /= 2 }) }, []string{"drafting executed what its drafts need"}},
		{"one record differs", func(_ *running, r *engine.Record) { r.VerifyNs-- }, []string{"work and durations are the same in all records of a step"}},
		{"no draft time", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.DraftNs = 0 }) }, []string{"drafting and verification took time, together no more than the step", "no drafting is faster than this machine drafts"}},
		{"faster than memory", func(c *running, r *engine.Record) { all(c, r, func(r *engine.Record) { r.VerifyNs = 1000 }) }, []string{"no pass is faster than reading its weights allows"}},
		{"commits more than it computed", func(_ *running, r *engine.Record) { r.Accepted = engine.Accepted(r.Rows) }, []string{"emitted tokens are those that the step computed", "no more tokens were committed than rows computed"}},
		{"placeholder", func(_ *running, r *engine.Record) { r.EmittedIDs[0] = 100 }, []string{"all rows of a step, rejected ones too, are those of the request alone", "emitted tokens are those that the step computed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := base.copied()
			// Not the first of its step: that is what others are compared with.
			seen := int64(-1)
			r := b.decodes(t, func(r *engine.Record) bool {
				ok := r.KExecuted == 3 && r.Step == seen && r.PrefillTokens == 0
				seen = r.Step
				return ok
			})
			c.change(b, r)
			require.Equal(t, c.want, failing(t, b, "work"))
		})
	}
}
