package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// Pages run out, sequences are preempted in the middle of windows and computed
// again, and nothing changes.
func TestPreemptionChangesNothing(t *testing.T) {
	m := tinyCPU(t)
	reqs := []engine.Request{
		{ID: "a", Prompt: prompt(50, 5), MaxNew: 150, Drafter: "mtp", K: 3},
		{ID: "b", Prompt: prompt(63, 6), MaxNew: 150, Drafter: "knowing", K: 4},
		{ID: "c", Prompt: prompt(20, 7), MaxNew: 150},
		{ID: "d", Prompt: prompt(40, 8), MaxNew: 150, Drafter: "ngram", K: 5, Rule: rule(t, "coupled"), Params: sample.Params{Temperature: 0.7, Seed: 11}},
	}
	want := plain(t, m, reqs...)
	r := newRig(t, m, engine.Config{MaxSequences: 4, Pages: 7}, strategy(t, m, "ngram"), strategy(t, m, "mtp"), knowing(outputs(want), 6))
	for _, q := range reqs {
		r.submit(q)
	}
	r.close()
	preempted := int32(0)
	for id, o := range r.out {
		same(t, want[id], o)
		preempted += o.records[len(o.records)-1].Preemptions
	}
	require.Positive(t, preempted, "7 pages are too few for 4 sequences of some 200 tokens")
}

// A prompt whose beginning is in the prefix cache starts behind it, with the
// bits that computing it would give, with and without a drafter that keeps
// caches of its own.
func TestPrefixHitChangesNothing(t *testing.T) {
	m := tinyCPU(t)
	shared := prompt(131, 3)
	for _, d := range []string{"", "mtp", "ngram"} {
		t.Run("drafter "+d, func(t *testing.T) {
			var reqs []engine.Request
			for i := range 4 {
				reqs = append(reqs, engine.Request{
					ID: fmt.Sprint("r", i), Prompt: append(append([]int32(nil), shared...), prompt(1+30*i, 40+i)...), MaxNew: 40, Drafter: d, K: 3,
				})
			}
			want := plain(t, m, reqs...)
			r := newRig(t, m, engine.Config{MaxSequences: 2, PrefixCache: true}, strategy(t, m, "mtp"), strategy(t, m, "ngram"))
			for _, q := range reqs {
				r.submit(q)
				require.NoError(t, r.e.Run(nil))
			}
			r.close()
			for i, q := range reqs {
				got := r.out[q.ID]
				same(t, want[q.ID], got)
				if i == 0 {
					require.Zero(t, got.records[0].Cached)
				} else {
					require.EqualValues(t, 128, got.records[0].Cached, q.ID)
					require.EqualValues(t, 128, got.records[0].Position)
				}
			}
		})
	}
}

// Cached says what the last admission took from the cache, also after a
// preemption.
func TestCachedFollowsAdmissions(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "first", Prompt: prompt(130, 3), MaxNew: 185, Drafter: "mtp", K: 3}
	want := plain(t, m, req)["first"]
	r := newRig(t, m, engine.Config{MaxSequences: 3, Pages: 6, PrefixCache: true}, strategy(t, m, "mtp"))
	r.submit(req)
	require.NoError(t, r.e.Run(nil))
	for i := range 3 {
		q := req
		q.ID = fmt.Sprint("again", i)
		r.submit(q)
	}
	r.close()
	preempted := false
	for id, o := range r.out {
		same(t, want, o)
		position := int32(-1)
		times := int32(0)
		for _, rec := range o.records {
			if rec.Position <= position {
				t.Fatalf("%s: position %d after %d", id, rec.Position, position)
			}
			if rec.Preemptions > times {
				// The first record after it starts where the cache ended.
				require.Equal(t, rec.Cached, rec.Position, "%s, preemption %d", id, rec.Preemptions)
				preempted, position = true, -1
			}
			times = rec.Preemptions
		}
	}
	require.True(t, preempted, "6 pages are too few for 3 sequences of 315 tokens")
}

// Chunks, budgets and company change nothing; drafts known in advance are
// accepted, wrong ones corrected.
func TestBatchesAndChunksChangeNothing(t *testing.T) {
	m := tinyCPU(t)
	var reqs []engine.Request
	for i, n := range []int{1, 62, 63, 64, 65, 127, 128, 129} {
		reqs = append(reqs, engine.Request{ID: fmt.Sprint("r", n), Prompt: prompt(n, n), MaxNew: 30, Drafter: []string{"knowing", "mtp", "ngram", ""}[i%4], K: 1 + i})
	}
	want := plain(t, m, reqs...)
	for _, c := range []engine.Config{
		{MaxSequences: 8}, {MaxSequences: 3, Chunk: 7}, {MaxSequences: 8, Chunk: 65, BatchTokens: 20}, {MaxSequences: 8, Chunk: 64, BatchTokens: 9},
	} {
		t.Run(fmt.Sprintf("sequences %d chunk %d budget %d", c.MaxSequences, c.Chunk, c.BatchTokens), func(t *testing.T) {
			r := newRig(t, m, c, knowing(outputs(want), 5), strategy(t, m, "mtp"), strategy(t, m, "ngram"))
			for _, q := range reqs {
				r.submit(q)
			}
			r.close()
			var proposed, accepted int
			for _, q := range reqs {
				got := r.out[q.ID]
				same(t, want[q.ID], got)
				for _, rec := range got.records {
					require.LessOrEqual(t, int(rec.BatchRows), r.e.Config().BatchTokens)
					require.LessOrEqual(t, int(rec.Batch), c.MaxSequences)
					proposed, accepted = proposed+int(rec.KExecuted), accepted+int(rec.Accepted)
				}
			}
			require.Positive(t, accepted)
			require.Less(t, accepted, proposed)
		})
	}
}

// Rows without hashes are possible, and say so by zeros; the tokens are the same.
func TestNoHash(t *testing.T) {
	m := tinyCPU(t)
	req := engine.Request{ID: "a", Prompt: prompt(10, 1), MaxNew: 10}
	want := plain(t, m, req)["a"]
	r := newRig(t, m, engine.Config{MaxSequences: 1, NoHash: true})
	r.submit(req)
	r.close()
	require.Equal(t, want.tokens, r.out["a"].tokens)
	for _, h := range r.out["a"].hashes {
		require.Zero(t, h)
	}
	for _, h := range want.hashes {
		require.NotZero(t, h)
	}
}
