package draft_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

// Sampled drafts keep the contract of strategies, in every scenario, and so do
// cascades of heads that tap the target at several places.
func TestHeadsKeepTheContract(t *testing.T) {
	for name, c := range map[string]draft.Strategy{
		"sampled mtp":    &draft.MTP{Sample: true},
		"sampled eagle3": &draft.Eagle3{Sample: true, Head: "random"},
		"unsure mtp":     &draft.MTP{MinConfidence: 0.3},
		"unsure eagle3":  &draft.Eagle3{MinConfidence: 0.4, Head: "random", Sample: true},
		"random model":   &draft.Model{Model: "random", Sample: true},
		"one layer":      &draft.LayerSkip{Layers: 1, Sample: true},
		"medusa chains":  &draft.Medusa{},
		"eagle trees":    &draft.Eagle{Tree: true, Width: 3, Depth: 4, Sample: true},
		"never cut":      &draft.DSpark{},
		"cascade": &draft.Cascade{Stages: []draft.Stage{
			{Drafter: "medusa", MinExpected: 1}, {Drafter: "dflash", MinExpected: 0.5}, {Drafter: "eagle3"},
		}},
		"cascade of models": &draft.Cascade{Stages: []draft.Stage{
			{Drafter: "layerskip", MinExpected: 0.5}, {Drafter: "mtp", MinExpected: 0.5}, {Drafter: "model", Config: map[string]any{"model": "random"}},
		}},
	} {
		t.Run(name, func(t *testing.T) { strategytest.Run(t, func() draft.Strategy { return c }) })
	}
}

// So do heads of 4 bits, whose LM heads know half of the vocabulary where the kind
// allows it.
func TestInt4HeadsKeepTheContract(t *testing.T) {
	const head = model.RandomInt4Head
	for name, c := range map[string]draft.Strategy{
		"mtp":          &draft.MTP{Head: head, Sample: true},
		"mtp-tree":     &draft.MTPTree{Head: head, Width: 3, Depth: 5},
		"eagle3":       &draft.Eagle3{Head: head},
		"eagle3-tree":  &draft.Eagle3Tree{Head: head, Width: 3, Depth: 5},
		"medusa":       &draft.Medusa{Head: head},
		"medusa trees": &draft.Medusa{Head: head, Tree: true},
		"dflash":       &draft.DFlash{Head: head},
		"dspark":       &draft.DSpark{Head: head},
		"eagle":        &draft.Eagle{Head: head, Width: 3, Depth: 5},
	} {
		t.Run(name, func(t *testing.T) { strategytest.Run(t, func() draft.Strategy { return c }) })
	}
}

// The heads that come with the embedded model are found by default, and guess what
// it says next as often as its card claims, or nearly.
func TestEmbeddedHeads(t *testing.T) {
	m, entry := embeddedModel(t)
	for name, least := range map[string]float64{"mtp": 0.7, "eagle3": 0.7, "dflash": 0.6, "dspark": 0.6, "medusa": 0.5} {
		s, err := draft.New(name)
		require.NoError(t, err)
		require.Greater(t, firstRight(t, m, entry, s), least, name)
	}
	require.Greater(t, firstRight(t, m, entry, &draft.MTP{Head: "model:mtp-int4"}), 0.7, "mtp of 4 bits")
	_, err := (&draft.MTP{Head: "model:mtp-int5"}).Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: entry.Vocab()})
	require.ErrorContains(t, err, "no mtp head (heads/mtp-int5)")
}

// embeddedModel loads the embedded model with its MTP module; the test is skipped in
// a build without it.
func embeddedModel(t *testing.T) (*model.Model, *registry.Entry) {
	t.Helper()
	entry, err := registry.Open(registry.Embedded)
	if errors.Is(err, embedded.ErrAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, entry.Close()) })
	be, err := cpu.New(cpu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	m, err := model.Load(be, entry.Source, model.Options{MaxTokens: 512, MTP: true})
	require.NoError(t, err)
	return m, entry
}

// embeddedPrompts returns the tokens of the first n prompts of the embedded model.
func embeddedPrompts(t *testing.T, entry *registry.Entry, n int) [][]int32 {
	t.Helper()
	prompts, err := entry.Prompts()
	require.NoError(t, err)
	list := make([][]int32, n)
	for i := range list {
		list[i], err = entry.Tokenizer.EncodeStrict(prompts[i].Text, true)
		require.NoError(t, err)
	}
	return list
}

// firstRight is the share of first drafts that were accepted in continuations of
// some prompts.
func firstRight(t *testing.T, m *model.Model, entry *registry.Entry, s draft.Strategy) float64 {
	t.Helper()
	d, err := s.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: entry.Vocab()})
	require.NoError(t, err)
	name := d.Name()
	rule, err := verify.New("greedy")
	require.NoError(t, err)
	right, all := 0, 0
	e, err := engine.New(m, engine.Config{MaxTokens: 512, MaxSequences: 8, Vocab: entry.Vocab()}, map[string]engine.Drafter{name: d}, rule,
		engine.RecorderFunc(func(r *engine.Record) error {
			if r.KExecuted > 0 {
				all++
				right += min(1, int(r.Accepted))
			}
			return nil
		}), engine.Listener{})
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	for i, ids := range embeddedPrompts(t, entry, 8) {
		_, err = e.Submit(engine.Request{ID: fmt.Sprint(i), Prompt: ids, MaxNew: 48, Drafter: name, K: 6, IgnoreStop: true})
		require.NoError(t, err)
	}
	require.NoError(t, e.Run(nil))
	t.Logf("%s: %d of %d first drafts right", name, right, all)
	return float64(right) / float64(all)
}
