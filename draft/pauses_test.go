package draft_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/verify"
)

// pauses drafts nothing for off steps, then for on steps, each sequence shifted
// against the one before.
type pauses struct{ on, off, step int }

func (p *pauses) Choose(asks []engine.LengthAsk) {
	p.step++
	for i := range asks {
		if (p.step+7*int(asks[i].Seq.ID()))%(p.on+p.off) >= p.off {
			asks[i].K = asks[i].Most
		}
	}
}
func (*pauses) Observe(*engine.StepOutcome) {}
func (*pauses) Release(*engine.Sequence)    {}

// A head that was not told of steps without drafts, until there were many of them,
// drafts at each position what it drafts without pauses.
func TestPausesChangeNoDrafts(t *testing.T) {
	m, entry := embeddedModel(t)
	for _, name := range []string{"mtp", "mtp-tree", "eagle3", "dflash", "medusa"} {
		t.Run(name, func(t *testing.T) {
			always, paused := proposals(t, m, entry, name, nil), 0
			for _, p := range []*pauses{{on: 3, off: 5}, {on: 2, off: 40}} {
				for at, ids := range proposals(t, m, entry, name, p) {
					if want, ok := always[at]; ok {
						require.Equal(t, want, ids, "%s, pauses of %d steps", at, p.off)
						paused++
					}
				}
			}
			require.Greater(t, paused, 20)
		})
	}
}

// proposals runs some prompts, two of which begin alike, and returns the drafts by
// request and position.
func proposals(t *testing.T, m *model.Model, entry *registry.Entry, name string, p *pauses) map[string][]int32 {
	t.Helper()
	s, err := draft.New(name)
	require.NoError(t, err)
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: entry.Vocab()})
	require.NoError(t, err)
	rule, err := verify.New("greedy")
	require.NoError(t, err)
	out := map[string][]int32{}
	cfg := engine.Config{MaxTokens: 512, MaxSequences: 3, Vocab: entry.Vocab(), PrefixCache: true}
	if p != nil {
		cfg.Lengths = p
	}
	e, err := engine.New(m, cfg, map[string]engine.Drafter{name: d}, rule,
		engine.RecorderFunc(func(r *engine.Record) error {
			if r.KPlanned == 3 {
				out[fmt.Sprintf("request %s at %d", r.Request, r.Position)] = r.ProposedIDs
			}
			return nil
		}), engine.Listener{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	prompts := embeddedPrompts(t, entry, 4)
	for i, ids := range append(prompts, prompts[0]) {
		_, err = e.Submit(engine.Request{ID: fmt.Sprint(i), Prompt: ids, MaxNew: 90, Drafter: name, K: 3, IgnoreStop: true})
		require.NoError(t, err)
	}
	require.NoError(t, e.Run(nil))
	return out
}
