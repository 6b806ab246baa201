package sched

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneRequest(t *testing.T) {
	c, err := New(Config{Slots: 2, Pages: 8, SlotPages: 4, MaxBatchTokens: 64, Chunk: 32})
	require.NoError(t, err)
	require.NoError(t, c.Submit(Request{ID: 7, Prompt: make([]int32, 40), MaxLen: 60, K: 3}))
	p := c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Prefill, Rows: 32}}, p.Items)
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 32}}))
	p = c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Prefill, Start: 32, Rows: 8, Last: true}}, p.Items)
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 8, Tokens: []int32{1}}}))
	p = c.Plan()
	require.Equal(t, []Item{{ID: 7, Slot: 0, Phase: Decode, Start: 40, Rows: 1, K: 3, Last: true}}, p.Items)
	require.NoError(t, c.Commit([]Result{{ID: 7, Kept: 2, Tokens: []int32{1, 2}, Done: true}}))
	require.Zero(t, c.Len())
	require.Empty(t, c.Plan().Items)
}
