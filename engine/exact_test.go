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
	r := newRig(t, m, engine.Config{MaxSequences: 4, Pages: 7, ExpectedOutput: -1}, strategy(t, m, "ngram"), strategy(t, m, "mtp"), knowing(outputs(want), 6))
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
// preemption, when less may be there than at first.
func TestCachedFollowsAdmissions(t *testing.T) {
	m := tinyCPU(t)
	first := engine.Request{ID: "first", Prompt: prompt(130, 3), MaxNew: 185, Drafter: "mtp", K: 3}
	reqs := []engine.Request{first}
	for i := range 5 {
		q := first
		q.ID = fmt.Sprint("again", i)
		if i%2 == 0 {
			q.Prompt = prompt(130, 70+i) // takes the only snapshot
		}
		reqs = append(reqs, q)
	}
	want := plain(t, m, reqs...)
	r := newRig(t, m, engine.Config{MaxSequences: 3, Pages: 8, ExpectedOutput: -1, PrefixCache: true, Snapshots: 1, Chunk: 20}, strategy(t, m, "mtp"))
	for i, q := range reqs {
		r.submit(q)
		if i == 0 {
			require.NoError(t, r.e.Run(nil))
		}
	}
	r.close()
	preempted, less := false, false
	for id, o := range r.out {
		same(t, want[id], o)
		position, times, cached := int32(-1), int32(0), int32(0)
		for i, rec := range o.records {
			if i == 0 || rec.Preemptions > times {
				// The first record of an admission starts where the cache ended.
				require.Equal(t, rec.Cached, rec.Position, "%s, preemption %d", id, rec.Preemptions)
				preempted = preempted || i > 0
				less = less || i > 0 && rec.Cached < cached
				position, times, cached = -1, rec.Preemptions, rec.Cached
			}
			require.Greater(t, rec.Position, position, id)
			require.Equal(t, cached, rec.Cached, id)
			position = rec.Position
		}
	}
	require.True(t, preempted, "8 pages are too few for 3 sequences of 315 tokens")
	require.True(t, less, "no sequence found less in the cache when it came back")
}

// watching is a device drafter that compares its view of a step in backend
// memory with the host's.
type watching struct {
	engine.DeviceDrafter
	t      *testing.T
	name   string
	masked int // steps that held spans of others before its own
}

func (w *watching) Name() string { return w.name }

func (w *watching) Committed(s *engine.Step) error {
	kept, next := make([]int32, s.Batch.Spans), make([]int32, s.Batch.Spans)
	s.Queue.Read(bytesOf(kept), s.Kept)
	require.NoError(w.t, s.Queue.Read(bytesOf(next), s.Next).Wait())
	off := s.Batch.Spans - len(s.Spans) // its own spans come last in its view
	for i := range off {
		require.Zero(w.t, kept[i], "a span of another drafter")
	}
	for i, sp := range s.Spans {
		require.EqualValues(w.t, sp.Kept, kept[off+i])
		require.Equal(w.t, sp.Next, next[off+i])
	}
	if off > 0 {
		w.masked++
	}
	return w.DeviceDrafter.Committed(s)
}

// Two drafters with caches of their own serve sequences of one batch; each is
// told of its own alone.
func TestTwoDeviceDrafters(t *testing.T) {
	m := tinyCPU(t)
	var reqs []engine.Request
	for i, d := range []string{"one", "two", "", "one", "two", "ngram"} {
		reqs = append(reqs, engine.Request{ID: fmt.Sprint("r", i), Prompt: prompt(55+3*i, i), MaxNew: 40, Drafter: d, K: 1 + i})
	}
	want := plain(t, m, reqs...)
	w := make([]*watching, 2)
	for i, name := range []string{"one", "two"} {
		w[i] = &watching{DeviceDrafter: strategy(t, m, "mtp").(engine.DeviceDrafter), t: t, name: name}
	}
	r := newRig(t, m, engine.Config{MaxSequences: 5, Pages: 14, ExpectedOutput: -1}, w[0], w[1], strategy(t, m, "ngram"))
	for _, q := range reqs {
		r.submit(q)
	}
	r.close()
	for id, o := range r.out {
		same(t, want[id], o)
	}
	require.Zero(t, w[0].masked)
	require.Positive(t, w[1].masked)
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
