package sched

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var small = Config{Slots: 2, Pages: 8, SlotPages: 4, MaxBatchTokens: 64, Chunk: 32}

func newCore(t testing.TB, cfg Config) *Core {
	t.Helper()
	c, err := New(cfg)
	require.NoError(t, err)
	return c
}

func TestOneRequest(t *testing.T) {
	c := newCore(t, small)
	prompt := make([]int32, 40)
	require.NoError(t, c.Submit(Request{ID: 7, Prompt: prompt, MaxLen: 60, K: 3}))
	prompt[0] = 9 // the core has its own copy
	p := c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Prefill, Rows: 32}}, p.Items)
	require.Equal(t, []Op{{Kind: Reset, ID: 7}, {Kind: SetPages, ID: 7, Pages: []int32{0}}}, p.Before)
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 32}}))
	p = c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Prefill, Start: 32, Rows: 8, Last: true}}, p.Items)
	require.Empty(t, p.Before)
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 8, Tokens: []int32{1}}}))
	p = c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Decode, Start: 40, Rows: 1, K: 3, Last: true}}, p.Items)
	require.Equal(t, append(make([]int32, 40), 1), c.Known(7))
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 2, Tokens: []int32{1, 2}, Done: true}}))
	require.Zero(t, c.Len())
	require.Nil(t, c.Known(7))
	require.Empty(t, c.Plan().Items)
}

// TestCommitRefuses: results that do not fit the plan change nothing.
func TestCommitRefuses(t *testing.T) {
	c := newCore(t, small)
	require.ErrorIs(t, c.Commit(nil), ErrResult)
	require.NoError(t, c.Submit(Request{ID: 1, Prompt: make([]int32, 40), MaxLen: 44, K: 3}))
	require.NoError(t, c.Submit(Request{ID: 2, Prompt: make([]int32, 5), MaxLen: 60, K: 3}))
	try := func(name string, results ...Result) {
		t.Helper()
		require.ErrorIs(t, c.Commit(results), ErrResult, name)
		require.NoError(t, c.verify(), name)
	}
	next := []int32{3}
	c.Plan()
	first, second := Result{ID: 1, Kept: 32}, Result{ID: 2, Kept: 5, Tokens: next}
	try("one is missing", first)
	try("another order", second, first)
	try("part of a chunk", Result{ID: 1, Kept: 31}, second)
	try("more than the chunk", Result{ID: 1, Kept: 33}, second)
	try("a token within the prompt", Result{ID: 1, Kept: 32, Tokens: next}, second)
	try("no token at the prompt's end", first, Result{ID: 2, Kept: 5})
	try("two tokens at the prompt's end", first, Result{ID: 2, Kept: 5, Tokens: []int32{3, 4}})
	require.NoError(t, c.Commit([]Result{first, second}))

	c.Plan()
	second = Result{ID: 1, Kept: 8, Tokens: next}
	first = Result{ID: 2, Kept: 2, Tokens: []int32{3, 4}}
	try("nothing kept", Result{ID: 2}, second)
	try("more than the drafts", Result{ID: 2, Kept: 5, Tokens: make([]int32, 5)}, second)
	try("fewer tokens than rows", Result{ID: 2, Kept: 2, Tokens: next}, second)
	try("more tokens than rows, done", Result{ID: 2, Kept: 2, Tokens: make([]int32, 3), Done: true}, second)
	try("negative", Result{ID: 2, Kept: -1, Done: true}, second)
	require.NoError(t, c.Commit([]Result{first, second}))

	p := c.Plan()
	require.Equal(t, 2, p.Items[0].K, "at most the tokens up to MaxLen, less one")
	try("longer than MaxLen", Result{ID: 1, Kept: 4, Tokens: make([]int32, 4)}, Result{ID: 2, Kept: 1, Tokens: next})
	require.NoError(t, c.Commit([]Result{{ID: 1, Kept: 3, Tokens: make([]int32, 3)}, {ID: 2, Kept: 1, Tokens: next}}))
	require.Equal(t, 1, c.Len(), "at MaxLen a sequence is done")
	require.ErrorIs(t, c.Commit(nil), ErrResult, "twice")
}

// TestCancelInFlight: the result of a cancelled sequence may be its work or
// nothing, and is dropped.
func TestCancelInFlight(t *testing.T) {
	for _, r := range []Result{{ID: 1, Kept: 20, Tokens: []int32{1}}, {ID: 1}} {
		c := newCore(t, small)
		require.NoError(t, c.Submit(Request{ID: 1, Prompt: make([]int32, 20), MaxLen: 60}))
		c.Plan()
		require.True(t, c.Cancel(1))
		require.False(t, c.Cancel(1))
		require.Equal(t, 1, c.Len())
		require.NoError(t, c.Commit([]Result{r}))
		require.Zero(t, c.Len())
		require.NoError(t, c.verify())
	}
}

func TestPlanTwice(t *testing.T) {
	c := newCore(t, small)
	c.Plan()
	require.Panics(t, func() { c.Plan() })
	require.NoError(t, c.Commit(nil))
	require.Equal(t, int64(1), c.Plan().Step)
}

func TestExtend(t *testing.T) {
	c := newCore(t, small)
	require.NoError(t, c.Submit(Request{ID: 1, Prompt: make([]int32, 20), MaxLen: 200}))
	_, err := c.Extend(1, 100)
	require.ErrorContains(t, err, "not running")
	c.Plan()
	_, err = c.Extend(1, 100)
	require.ErrorContains(t, err, "in flight")
	require.NoError(t, c.Commit([]Result{{ID: 1, Kept: 20, Tokens: []int32{1}}}))
	op, err := c.Extend(1, 130)
	require.NoError(t, err)
	require.Equal(t, Op{Kind: SetPages, ID: 1, First: 1, Pages: []int32{1, 2}}, op)
	op, err = c.Extend(1, 130)
	require.NoError(t, err)
	require.Empty(t, op.Pages)
	_, err = c.Extend(1, 257)
	require.ErrorIs(t, err, ErrTooLong)
	require.NoError(t, c.Submit(Request{ID: 2, Prompt: make([]int32, 20), MaxLen: 200}))
	require.NotContains(t, fmt.Sprint(c.Plan().Before), "pages 1")

	c = newCore(t, Config{Slots: 2, Pages: 2, SlotPages: 2, MaxBatchTokens: 64, Chunk: 64})
	for id := range int64(2) {
		require.NoError(t, c.Submit(Request{ID: id, Prompt: make([]int32, 20), MaxLen: 40}))
	}
	c.Plan()
	require.NoError(t, c.Commit([]Result{{ID: 0, Kept: 20, Tokens: []int32{1}}, {ID: 1, Kept: 20, Tokens: []int32{1}}}))
	_, err = c.Extend(1, 100)
	require.ErrorContains(t, err, "too few pages")
	require.NoError(t, c.verify())
}

// TestWordsOfKinds: kinds that a trace can never hold print as such.
func TestWordsOfKinds(t *testing.T) {
	require.Equal(t, "none none open", fmt.Sprint(Phase(0), " ", OpKind(0), " ", Open))
}
