package draft_test

import (
	"testing"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
)

// Trees keep the contract of strategies, in every scenario.
func TestTreesKeepTheContract(t *testing.T) {
	for name, c := range map[string]draft.Strategy{
		"suffix":       &draft.Suffix{MaxDepth: 24, MaxFactor: 2, MinProb: 0, Branches: 3, MemoryMB: 1},
		"ngram":        &draft.NGram{MinMatch: 1, MaxMatch: 4, Branches: 3},
		"wide mtp":     &draft.MTPTree{Width: 6, Depth: 2},
		"narrow mtp":   &draft.MTPTree{Width: 1, Depth: 9},
		"wide eagle3":  &draft.Eagle3Tree{Head: "random", Width: 8, Depth: 4},
		"drawn mtp":    &draft.MTPTree{Width: 3, Depth: 4, Sample: true},
		"drawn eagle3": &draft.Eagle3Tree{Head: "random", Width: 2, Depth: 3, Sample: true},
		"in a cascade": &draft.Cascade{Stages: []draft.Stage{{Drafter: "suffix", MinExpected: 1}, {Drafter: "mtp-tree", MinExpected: 2}, {Drafter: "mtp"}}},
	} {
		t.Run(name, func(t *testing.T) { strategytest.Run(t, func() draft.Strategy { return c }) })
	}
}
