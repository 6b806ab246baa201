package audit_test

import (
	"fmt"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// Honest runs pass all three audits.
func TestHealthy(t *testing.T) {
	w := theWorld(t)
	for i, s := range []setup{
		{drafter: "none", rule: "greedy"},
		{drafter: "mtp", k: 1, rule: "greedy"},
		{drafter: "mtp", k: 3, rule: "greedy"},
		{drafter: "mtp", k: 3, rule: "greedy", engine: engine.Config{MaxSequences: 1}},
		{drafter: "ngram", k: 4, rule: "greedy"},
		{drafter: "suffix", k: 4, rule: "greedy"},
		{drafter: "mtp", k: 3, rule: "coupled", params: sample.Params{Temperature: 0.8, TopP: 0.95}},
		{drafter: "mtp", k: 3, rule: "rejection", params: sample.Params{Temperature: 0.8, TopK: 40}},
		{drafter: "mtp", k: 3, rule: "greedy", params: sample.Params{RepetitionPenalty: 1.2, PresencePenalty: 0.3}},
		{drafter: "mtp", k: 3, rule: "greedy", engine: engine.Config{Pages: 9, ExpectedOutput: -1, MaxSequences: 6, BatchTokens: 24}},
		{drafter: "mtp", k: 2, rule: "greedy", engine: engine.Config{PrefixCache: true, MaxSequences: 2}},
		{drafter: "mtp", k: 3, rule: "block", params: sample.Params{Temperature: 0.8, TopK: 40}},
		{drafter: "mtp", k: 4, rule: "greedy", simulate: "length=2.6", params: sample.Params{Seed: 5}},
		{drafter: "mtp", k: 4, rule: "greedy", simulate: "length=3", params: sample.Params{Seed: 5}},
		{drafter: "mtp", k: 3, rule: "rejection", simulate: "rates=0.9,0.5", params: sample.Params{Temperature: 0.7, Seed: 9}},
		{drafter: "ngram", k: 3, rule: "coupled", simulate: "length=1.5", params: sample.Params{Temperature: 0.7, Seed: 9}},
	} {
		t.Run(fmt.Sprintf("%d-%s-k%d-%s", i, s.drafter, s.k, s.rule), func(t *testing.T) {
			s.requests, s.maxNew = 6, 40
			w.run(t, s).passes(t)
		})
	}
}
