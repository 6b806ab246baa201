package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// On a device that is full, a request that needs more is refused, what runs goes on
// undisturbed, and what is only faster with more memory does without.
func TestOutOfMemoryIsTheNewcomers(t *testing.T) {
	m, be := device(t, tiny())
	names := []string{"mtp", "cascade"} // whose drafts may be trees
	r := newRig(t, m, engine.Config{MaxSequences: 3, Loop: true}, provisioned(t, m, names...)...)
	reqs := loopRequests("mtp")[:2]
	reqs[0].Drafter, reqs[0].K = "", 0
	r.submit(reqs[0])
	for range 5 {
		_, err := r.e.Step()
		require.NoError(t, err)
	}
	held := be.Memory().Total()
	require.Positive(t, r.e.LoopStats().Replays)
	be.Budget(held)
	_, err := r.e.Submit(engine.Request{ID: "branching", Prompt: prompt(20, 3), MaxNew: 9, IgnoreStop: true, Drafter: "cascade", K: 2})
	require.ErrorIs(t, err, kernels.ErrOutOfMemory)
	require.ErrorContains(t, err, "request branching")
	require.Equal(t, held, be.Memory().Total(), "what was refused is freed")
	replays := r.e.LoopStats().Replays
	r.submit(reqs[1]) // its loop's tables don't fit
	require.NoError(t, r.e.Run(nil))
	require.Less(t, r.e.LoopStats().Replays, replays+3, "there was no room for another loop")
	require.Equal(t, held, be.Memory().Total())
	be.Budget(0)
	seq, err := r.e.Submit(engine.Request{ID: "again", Prompt: prompt(20, 3), MaxNew: 9, IgnoreStop: true, Drafter: "cascade", K: 2})
	require.NoError(t, err)
	require.Greater(t, be.Memory().Total(), held)
	r.e.Cancel(seq)
	r.close()
	cpu := tinyCPU(t)
	for _, q := range reqs {
		same(t, plain(t, cpu, q)[q.ID], r.out[q.ID])
	}
}
