package draft_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

// The module in a model's own files drafts behind a history of verified and dropped
// drafts what it drafts behind the same tokens read as a prompt, at any length of draft,
// and the output is that of plain decoding.
func TestOwnDSparkForgets(t *testing.T) {
	ck, err := checkpoint.Open("../engine/model/testdata/deepseek_v41")
	require.NoError(t, err)
	defer func() { require.NoError(t, ck.Close()) }()
	be, err := cpu.New(cpu.Options{Threads: 2})
	require.NoError(t, err)
	defer func() { require.NoError(t, be.Close()) }()
	m, err := model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 128, MTP: true})
	require.NoError(t, err)
	require.True(t, m.HasHead(checkpoint.HeadDSpark))
	prompt := make([]int32, 30)
	for i := range prompt {
		prompt[i] = int32(4 + i*i%90)
	}
	plain, _ := ownDrafts(t, m, prompt, 60, 0)
	for _, k := range []int{8, 3, 1} {
		tokens, records := ownDrafts(t, m, prompt, 60, k)
		require.Equal(t, plain, tokens)
		require.Greater(t, len(records), 20)
		all := append(prompt[:len(prompt):len(prompt)], tokens...)
		for i := 2; i < len(records); i += 5 {
			at := int(records[i].Position)
			require.LessOrEqual(t, len(records[i].ProposedIDs), min(k, 4), "a block of 4")
			_, fresh := ownDrafts(t, m, all[:at], 1+int(records[i].KPlanned)+1, k)
			require.Equal(t, fresh[0].ProposedIDs, records[i].ProposedIDs, "k %d, behind %d tokens", k, at)
		}
	}
}

// ownDrafts runs one request, and returns its output and the steps with drafts.
func ownDrafts(t *testing.T, m *model.Model, prompt []int32, n, k int) (tokens []int32, steps []engine.Record) {
	t.Helper()
	d, err := (&draft.DSpark{}).Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize})
	require.NoError(t, err)
	rule, err := verify.New("greedy")
	require.NoError(t, err)
	cfg := engine.Config{MaxTokens: 128, MaxSequences: 2, MaxDraft: max(1, k), BatchTokens: 40, Chunk: 11}
	e, err := engine.New(m, cfg, map[string]engine.Drafter{d.Name(): d}, rule, engine.RecorderFunc(func(r *engine.Record) error {
		tokens = append(tokens, r.EmittedIDs...)
		if r.KExecuted > 0 {
			c := *r
			c.ProposedIDs = append([]int32(nil), r.ProposedIDs...)
			steps = append(steps, c)
		}
		return nil
	}), engine.Listener{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	req := engine.Request{ID: fmt.Sprint(len(prompt)), Prompt: prompt, MaxNew: n, IgnoreStop: true}
	if k > 0 {
		req.Drafter, req.K = d.Name(), k
	}
	_, err = e.Submit(req)
	require.NoError(t, err)
	require.NoError(t, e.Run(nil))
	return tokens, steps
}
