//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/verify"
)

// told is what an engine said of a request: tokens, and the hash behind each.
type told struct {
	tokens []int32
	hashes []uint64
	steps  int
}

// served runs requests of the embedded model through an engine on the device.
func served(t *testing.T, m *model.Model, loop bool, reqs []engine.Request, during func(e *engine.Engine)) map[string]*told {
	t.Helper()
	s, err := draft.New("mtp")
	require.NoError(t, err)
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize})
	require.NoError(t, err)
	rule, err := verify.New("greedy")
	require.NoError(t, err)
	out := map[string]*told{}
	e, err := engine.New(m, engine.Config{MaxSequences: 8, MaxTokens: 400, Loop: loop}, map[string]engine.Drafter{"mtp": d}, rule,
		engine.RecorderFunc(func(r *engine.Record) error {
			o := out[r.Request]
			o.tokens = append(o.tokens, r.EmittedIDs...)
			o.hashes = append(o.hashes, r.Hashes[:len(r.EmittedIDs)]...)
			o.steps++
			return nil
		}), engine.Listener{})
	require.NoError(t, err)
	for _, q := range reqs {
		out[q.ID] = &told{}
		_, err := e.Submit(q)
		require.NoError(t, err)
	}
	if during != nil {
		during(e)
	}
	require.NoError(t, e.Run(nil))
	require.NoError(t, e.Close())
	return out
}

// TestLoopOnDevice holds an engine whose loop is on the device to the tokens and
// hashes of plain decoding there, and counts how often the host waits meanwhile.
func TestLoopOnDevice(t *testing.T) {
	be := open(t)
	m, err := model.Load(be, embedded(t), model.Options{MaxTokens: 400, MTP: true})
	require.NoError(t, err)
	texts := prompts(t)
	var reqs, plain []engine.Request
	for i := range 12 {
		q := engine.Request{ID: fmt.Sprint(i), Prompt: texts[i%len(texts)], MaxNew: 120 + 11*i, IgnoreStop: true}
		q.Prompt = q.Prompt[:min(len(q.Prompt), 100)]
		plain = append(plain, q)
		q.Drafter, q.K = "mtp", 3
		reqs = append(reqs, q)
	}
	want := served(t, m, false, plain, nil)
	for name, in := range map[string][]engine.Request{"plain": plain, "mtp": reqs} {
		begin := time.Now()
		got := served(t, m, true, in, func(e *engine.Engine) {
			for range 8 {
				_, err := e.Step()
				require.NoError(t, err)
			}
			waits, from := be.Waits(), time.Now()
			for range 20 {
				_, err := e.Step()
				require.NoError(t, err)
			}
			require.Equal(t, waits, be.Waits(), "the host waited in steady decode")
			t.Logf("%s: %v a turn", name, time.Since(from)/20)
		})
		steps := 0
		for id, o := range got {
			require.Equal(t, want[id].tokens, o.tokens, id)
			require.Equal(t, want[id].hashes, o.hashes, id)
			steps += o.steps
		}
		t.Logf("%s: %d steps of sequences in %v", name, steps, time.Since(begin))
	}
	begin := time.Now()
	stepped := served(t, m, false, reqs, nil)
	t.Logf("mtp without the loop: %v", time.Since(begin))
	for id, o := range stepped {
		require.Equal(t, want[id].hashes, o.hashes, id)
	}
}
