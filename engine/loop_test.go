package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/fakedev"
)

const loopK = 3

// device loads a model on a device that the host can't look into.
func device(t *testing.T, src model.Source) (*model.Model, *fakedev.Backend) {
	t.Helper()
	be := fakedev.New(newCPU(t))
	return load(t, be, src), be
}

// drafters provisions strategies; "" is none.
func provisioned(t *testing.T, m *model.Model, names ...string) (out []engine.Drafter) {
	t.Helper()
	for _, n := range names {
		if n != "" {
			out = append(out, strategy(t, m, n))
		}
	}
	return out
}

// loopRequests are of several lengths, more than there are slots, so that some come
// in while others run; one ends at a stop token.
func loopRequests(drafter string) []engine.Request {
	var reqs []engine.Request
	for i, n := range []int{50, 37, 63, 20, 90} {
		q := engine.Request{ID: fmt.Sprint("r", i), Prompt: prompt(n, 5+i), MaxNew: 40 + 29*i, IgnoreStop: true, Drafter: drafter, K: loopK}
		if drafter == "" {
			q.K = 0
		}
		reqs = append(reqs, q)
	}
	return reqs
}

// stopping makes a request end at a token that its plain output has in the middle.
func stopping(q engine.Request, want *outcome) engine.Request {
	q.IgnoreStop, q.Stop = false, []int32{want.tokens[len(want.tokens)/2]}
	return q
}

// loopIsStep compares a loop on a device with Step on the CPU: tokens, hashes, and
// every column of the decoding records that is not about the batch or the clock.
func loopIsStep(t *testing.T, src model.Source, drafter string, reqs []engine.Request, cfg engine.Config) (accepted int) {
	t.Helper()
	m := load(t, newCPU(t), src)
	reqs[1] = stopping(reqs[1], plain(t, m, reqs[1])[reqs[1].ID])
	r := newRig(t, m, cfg, provisioned(t, m, drafter)...)
	for _, q := range reqs {
		r.submit(q)
	}
	r.close()
	dev, _ := device(t, src)
	cfg.Loop = true
	l := newRig(t, dev, cfg, provisioned(t, dev, drafter)...)
	for _, q := range reqs {
		l.submit(q)
	}
	require.NoError(t, l.e.Run(nil))
	require.Greater(t, l.e.LoopStats().Replays, int64(30))
	l.close()
	for _, q := range reqs {
		want, got := r.out[q.ID], l.out[q.ID]
		same(t, plain(t, m, q)[q.ID], got)
		require.Equal(t, want.seq.Finish(), got.seq.Finish())
		require.Len(t, got.records, len(want.records))
		for i, have := range got.records {
			at := fmt.Sprintf("%s, record %d", q.ID, i)
			require.Equal(t, logical(want.records[i]), logical(have), at)
			if have.Phase == engine.Decode {
				accepted += int(have.Accepted)
				require.Positive(t, have.TargetWork.MACs, at)
				require.Positive(t, have.VerifyNs, at)
				require.LessOrEqual(t, have.DraftNs+have.VerifyNs, have.TotalNs, at)
			}
		}
	}
	return accepted
}

// logical is a record without what depends on the batch and the clock.
func logical(r *engine.Record) engine.Record {
	c := *r
	c.Step, c.Batch, c.BatchRows, c.IdleRows, c.PrefillTokens = 0, 0, 0, 0, 0
	c.DraftNs, c.VerifyNs, c.TotalNs = 0, 0, 0
	c.DraftWork, c.TargetWork = kernels.Counters{}, kernels.Counters{}
	if len(c.ProposedIDs) == 0 {
		c.ProposedIDs = nil
	}
	return c
}

// The loop decides what Step decides, on a device that the host can't look into, while
// sequences come and go.
func TestLoopIsStep(t *testing.T) {
	for _, d := range []string{"", "mtp", "eagle3", "medusa", "dflash", "layerskip", "model", "eagle", "dspark", "ngram", "suffix"} {
		t.Run("drafter "+d, func(t *testing.T) {
			loopIsStep(t, tiny(), d, loopRequests(d), engine.Config{MaxSequences: 3, MaxTokens: context})
		})
	}
}

// The same with trained weights, where most drafts stand.
func TestLoopIsStepEmbedded(t *testing.T) {
	if testing.Short() {
		t.Skip("the embedded model is too slow under the race detector")
	}
	entry, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, entry.Close()) })
	reqs := loopRequests("mtp")[:2]
	for i, text := range []string{"package main\n\nimport (\n\t\"fmt\"\n", "func (s *Server) handle(w http.ResponseWriter, r *http.Request) {\n\tif err := "} {
		// A few tokens before a border, so that it is crossed whatever the
		// weights accept.
		ids := entry.Tokenizer.Encode(strings.Repeat("// A line that says nothing.\n", 20)+text, true)
		reqs[i].Prompt, reqs[i].MaxNew = ids[len(ids)-(kernels.WindowTokens-6):], 120
	}
	accepted := loopIsStep(t, entry.Source, "mtp", reqs, engine.Config{MaxSequences: 3, MaxTokens: context})
	t.Logf("%d drafts accepted", accepted)
	require.Greater(t, accepted, 30)
}

// Sampling by the coupled rule is the loop's too, beside greedy requests; so is plain
// sampling.
func TestLoopDraws(t *testing.T) {
	for _, d := range []string{"", "mtp", "ngram", "layerskip"} {
		t.Run("drafter "+d, func(t *testing.T) {
			reqs := loopRequests(d)
			for i := range reqs {
				reqs[i].Rule = rule(t, "coupled")
				if i != 2 {
					reqs[i].Params = sample.Params{Temperature: 0.3 + 0.2*float32(i), MinP: 0.02 * float32(i), Seed: uint64(i), Choice: uint32(i % 2)}
				}
			}
			accepted := loopIsStep(t, tiny(), d, reqs, engine.Config{MaxSequences: 3, MaxTokens: context})
			t.Logf("%d drafts accepted", accepted)
		})
	}
}

// What no loop can decode stays with Step: cascades, and requests that are watched.
func TestLoopLeavesToStep(t *testing.T) {
	for _, d := range []string{"cascade", "mtp"} {
		m, _ := device(t, tiny())
		r := newRig(t, m, engine.Config{MaxSequences: 2, Loop: true}, provisioned(t, m, d)...)
		q := loopRequests(d)[0]
		if d == "mtp" {
			q.Observe = func(int32, []float32) {}
		}
		r.submit(q)
		require.NoError(t, r.e.Run(nil))
		require.Zero(t, r.e.LoopStats().Replays, d)
		r.close()
		same(t, plain(t, tinyCPU(t), q)[q.ID], r.out[q.ID])
	}
}

// everyOther is a policy that gives each sequence another length in each step.
type everyOther struct{ steps, told int }

func (p *everyOther) Choose(asks []engine.LengthAsk) {
	p.steps++
	for i := range asks {
		asks[i].K = min(asks[i].Most, (p.steps+int(asks[i].Seq.ID()))%(loopK+1))
	}
}

func (p *everyOther) Observe(o *engine.StepOutcome) {
	for _, s := range o.Sequences {
		p.told += s.Drafts
	}
}

func (p *everyOther) Release(*engine.Sequence) {}

// Lengths that a policy chooses, other lengths and none beside each other, and
// drafters on the device and on the host: the output is that of plain decoding.
func TestLoopLengths(t *testing.T) {
	cpu := tinyCPU(t)
	for _, d := range []string{"mtp", "ngram", "dflash"} {
		m, _ := device(t, tiny())
		reqs := loopRequests(d)
		reqs[0].K, reqs[3].Drafter, reqs[3].K = 1, "", 0
		want := plain(t, cpu, reqs...)
		policy := &everyOther{}
		r := newRig(t, m, engine.Config{MaxSequences: 3, MaxTokens: context, Loop: true, Lengths: policy}, provisioned(t, m, d)...)
		for _, q := range reqs {
			r.submit(q)
		}
		require.NoError(t, r.e.Run(nil))
		stats := r.e.LoopStats()
		require.Greater(t, stats.Replays, int64(30))
		require.Positive(t, stats.Busy)
		r.close()
		drafts, widths := 0, map[int32]bool{}
		for _, q := range reqs {
			same(t, want[q.ID], r.out[q.ID])
			for _, rec := range r.out[q.ID].records {
				drafts += int(rec.KExecuted)
				widths[rec.KPlanned] = true
				require.LessOrEqual(t, int(rec.KPlanned), q.K)
			}
		}
		require.Equal(t, drafts, policy.told)
		require.Len(t, widths, loopK+1)
	}
}

// In steady decode the host waits for nothing, and a turn finishes the replay before
// the last.
func TestLoopNeverWaits(t *testing.T) {
	for _, d := range []string{"", "mtp", "ngram"} {
		m, be := device(t, tiny())
		r := newRig(t, m, engine.Config{MaxSequences: 2, Loop: true}, provisioned(t, m, d)...)
		for _, q := range loopRequests(d)[3:] {
			q.MaxNew = 180
			r.submit(q)
		}
		for range 6 {
			_, err := r.e.Step()
			require.NoError(t, err)
		}
		waits, records := be.Waits(), len(r.out["r3"].records)
		for range 20 {
			_, err := r.e.Step()
			require.NoError(t, err)
		}
		require.Equal(t, waits, be.Waits(), "drafter %q", d)
		require.Equal(t, records+20, len(r.out["r3"].records))
		r.close()
	}
}

// A request that a loop can't decode ends the loop until it has gone; pages that run
// out lead to preemption; cancelling leaves the others alone.
func TestLoopGivesWay(t *testing.T) {
	m, _ := device(t, tiny())
	cpu := tinyCPU(t)
	reqs := loopRequests("mtp")[:4]
	hot := engine.Request{ID: "hot", Prompt: prompt(30, 9), MaxNew: 20, IgnoreStop: true, Params: sample.Params{Temperature: 0.8, TopK: 40, Seed: 3}, Rule: rule(t, "coupled")}
	want := plain(t, cpu, append(reqs, hot)...)
	r := newRig(t, m, engine.Config{MaxSequences: 4, Pages: 7, Loop: true, PrefixCache: true}, provisioned(t, m, "mtp")...)
	for _, q := range reqs {
		r.submit(q)
	}
	for range 12 {
		_, err := r.e.Step()
		require.NoError(t, err)
	}
	r.submit(hot)
	gone := engine.Request{ID: "gone", Prompt: prompt(25, 4), MaxNew: 100, IgnoreStop: true, Drafter: "mtp", K: loopK}
	cancelled := r.submit(gone)
	for range 30 {
		_, err := r.e.Step()
		require.NoError(t, err)
	}
	r.e.Cancel(cancelled)
	r.close()
	preempted := int32(0)
	for _, q := range append(reqs, hot) {
		same(t, want[q.ID], r.out[q.ID])
		records := r.out[q.ID].records
		preempted += records[len(records)-1].Preemptions
	}
	require.Positive(t, preempted, "7 pages are too few for 4 sequences")
	require.Equal(t, engine.FinishCancel, cancelled.Finish())
}
