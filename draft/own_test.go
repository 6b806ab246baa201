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
// and the output is that of plain decoding: blocks that are filled in whole, chains and
// trees whose first choice of keys serves all.
func TestOwnModulesForget(t *testing.T) {
	for _, c := range []struct {
		name, model string
		strategy    draft.Strategy
		most        int // drafts
	}{
		{"dspark", "deepseek_v41", &draft.DSpark{}, 4},
		{"mtp", "glm_moe_dsa", &draft.MTP{}, 8},
		{"unsure mtp", "glm_moe_dsa", &draft.MTP{MinConfidence: 0.5}, 8},
		{"mtp-tree", "glm_moe_dsa", &draft.MTPTree{Width: 2, Depth: 3}, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			ck, err := checkpoint.Open("../engine/model/testdata/" + c.model)
			require.NoError(t, err)
			defer func() { require.NoError(t, ck.Close()) }()
			be, err := cpu.New(cpu.Options{Threads: 2})
			require.NoError(t, err)
			defer func() { require.NoError(t, be.Close()) }()
			m, err := model.Load(be, model.Checkpoint{Checkpoint: ck}, model.Options{MaxTokens: 128, MTP: true})
			require.NoError(t, err)
			prompt := make([]int32, 30)
			for i := range prompt {
				prompt[i] = int32(4 + i*i%90)
			}
			plain, _ := ownDrafts(t, m, c.strategy, prompt, 60, 0)
			for _, k := range []int{8, 3, 1} {
				tokens, records := ownDrafts(t, m, c.strategy, prompt, 60, k)
				require.Equal(t, plain, tokens)
				require.Greater(t, len(records), 10)
				all := append(prompt[:len(prompt):len(prompt)], tokens...)
				for i := 2; i < len(records); i += 5 {
					at := int(records[i].Position)
					require.LessOrEqual(t, len(records[i].ProposedIDs), min(k, c.most))
					_, fresh := ownDrafts(t, m, c.strategy, all[:at], 1+int(records[i].KPlanned)+1, k)
					require.Equal(t, fresh[0].ProposedIDs, records[i].ProposedIDs, "k %d, behind %d tokens", k, at)
				}
			}
		})
	}
}

// unshared is a checkpoint whose MTP module chooses its keys for each draft.
type unshared struct{ model.Checkpoint }

// Config implements model.Source.
func (u unshared) Config() checkpoint.Config {
	c := u.Checkpoint.Config()
	c.Index.ShareMTP = false
	return c
}

// A shared choice of keys is made for the first draft, which is the same without it, and
// holds for those behind it, in chains and trees.
func TestSharedChoice(t *testing.T) {
	ck, err := checkpoint.Open("../engine/model/testdata/glm_moe_dsa")
	require.NoError(t, err)
	defer func() { require.NoError(t, ck.Close()) }()
	require.True(t, ck.Config().Index.ShareMTP)
	for _, s := range []draft.Strategy{&draft.MTP{}, &draft.MTP{MinConfidence: 1e-9}, &draft.MTPTree{Width: 1, Depth: 8}} {
		var drafts [][]int32
		for _, src := range []model.Source{model.Checkpoint{Checkpoint: ck}, unshared{model.Checkpoint{Checkpoint: ck}}} {
			be, err := cpu.New(cpu.Options{Threads: 1})
			require.NoError(t, err)
			m, err := model.Load(be, src, model.Options{MaxTokens: 128, MTP: true})
			require.NoError(t, err)
			prompt := make([]int32, 60)
			for i := range prompt {
				prompt[i] = int32(4 + i*i%90)
			}
			_, steps := ownDrafts(t, m, s, prompt, 10, 8)
			drafts = append(drafts, steps[0].ProposedIDs)
			require.NoError(t, be.Close())
		}
		require.Len(t, drafts[0], 8)
		require.Equal(t, drafts[1][0], drafts[0][0])
		require.NotEqual(t, drafts[1], drafts[0])
	}
}

// ownDrafts runs one request, and returns its output and the steps with drafts.
func ownDrafts(t *testing.T, m *model.Model, s draft.Strategy, prompt []int32, n, k int) (tokens []int32, steps []engine.Record) {
	t.Helper()
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize})
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
