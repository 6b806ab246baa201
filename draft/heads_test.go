package draft_test

import (
	"testing"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
)

// Sampled drafts keep the contract of strategies, in every scenario, and so do
// cascades of heads that tap the target at several places.
func TestHeadsKeepTheContract(t *testing.T) {
	for name, c := range map[string]draft.Strategy{
		"sampled mtp":    &draft.MTP{Sample: true},
		"sampled eagle3": &draft.Eagle3{Sample: true, Head: "random"},
		"cascade": &draft.Cascade{Stages: []draft.Stage{
			{Drafter: "medusa", MinExpected: 1}, {Drafter: "dflash", MinExpected: 0.5}, {Drafter: "eagle3"},
		}},
	} {
		t.Run(name, func(t *testing.T) { strategytest.Run(t, func() draft.Strategy { return c }) })
	}
}
