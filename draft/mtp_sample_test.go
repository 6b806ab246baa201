package draft_test

import (
	"testing"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
)

// Sampled drafts keep the contract of strategies, in every scenario.
func TestSampledMTPKeepsTheContract(t *testing.T) {
	strategytest.Run(t, func() draft.Strategy { return &draft.MTP{Sample: true} })
}
