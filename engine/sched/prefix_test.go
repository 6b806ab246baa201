package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// run plans and commits a step in which no draft is right and the next token of
// each sequence is what next says.
func run(t *testing.T, c *Core, next map[int64]int32) Plan {
	t.Helper()
	p := c.Plan()
	var results []Result
	for _, it := range p.Items {
		r := Result{ID: it.ID, Kept: it.Rows}
		if it.Last {
			r.Tokens = []int32{next[it.ID]}
		}
		results = append(results, r)
	}
	require.NoError(t, c.Commit(results))
	require.NoError(t, c.verify())
	return p
}

func count(from, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(from + i)
	}
	return out
}

// TestPendingOnlyForMore: a sequence does not wait for a prefix that the cache
// has already, or that is nobody's prompt.
func TestPendingOnlyForMore(t *testing.T) {
	c := newCore(t, Config{Slots: 4, Pages: 16, SlotPages: 4, MaxBatchTokens: 200, Chunk: 62, PrefixCache: true})
	require.NoError(t, c.Submit(Request{ID: 1, Prompt: count(0, 62), MaxLen: 100}))
	run(t, c, map[int64]int32{1: 62})

	// 2 and 3 begin with what 1 will have said.
	require.NoError(t, c.Submit(Request{ID: 2, Prompt: count(0, 150), MaxLen: 200}))
	run(t, c, map[int64]int32{1: 63})
	require.Len(t, c.Known(1), 64)
	require.NoError(t, c.Submit(Request{ID: 3, Prompt: append(count(0, 64), 9), MaxLen: 200}))
	require.Equal(t, 62, c.running[1].length)
	hit := c.prefix.Lookup("", c.byID[3].known)
	require.Zero(t, hit.Length, "1 has not computed its last token")
	p := planner{Core: c}
	require.True(t, p.pending(c.byID[3], hit), "2 is about to")
	c.running[1].decoding = true
	require.False(t, p.pending(c.byID[3], hit), "decoding sequences are not waited for")
	c.running[1].decoding = false
	hit.Length = 64
	require.False(t, p.pending(c.byID[3], hit), "the cache has as much")
}

// TestCutPageStaysOut: rows whose tokens were cut at a stop are in no key.
func TestCutPageStaysOut(t *testing.T) {
	for _, cut := range []bool{false, true} {
		c := newCore(t, Config{Slots: 1, Pages: 4, SlotPages: 4, MaxBatchTokens: 200, Chunk: 200, PrefixCache: true})
		require.NoError(t, c.Submit(Request{ID: 1, Prompt: count(0, 62), MaxLen: 100, K: 3}))
		run(t, c, nil)
		require.Equal(t, 3, c.Plan().Items[0].K)
		r := Result{ID: 1, Kept: 4, Tokens: []int32{7, 8, 9, 10}, Done: true}
		if cut {
			r.Tokens = r.Tokens[:0]
		}
		require.NoError(t, c.Commit([]Result{r}))
		require.Equal(t, 1-btoi(cut), c.pages.Idle())
	}
}

// TestFailedSave: a sequence that fails in the step that was to save its
// snapshot leaves none.
func TestFailedSave(t *testing.T) {
	c := newCore(t, Config{
		Slots: 1, Pages: 4, SlotPages: 4, MaxBatchTokens: 200, Chunk: 200,
		PrefixCache: true, Recurrent: true, Snapshots: 1,
	})
	for _, kept := range []int{0, 10, 64} {
		require.NoError(t, c.Submit(Request{ID: 1, Prompt: count(0, 70), MaxLen: 100}))
		p := c.Plan()
		require.Equal(t, []Op{{Kind: Save, ID: 1, Snapshot: 0, Length: 64}}, p.After)
		require.NoError(t, c.Commit([]Result{{ID: 1, Kept: kept, Done: true}}))
		require.NoError(t, c.verify())
		hit := c.prefix.Lookup("", count(0, 70))
		require.Equal(t, kept/64*64, hit.Length)
	}
}
