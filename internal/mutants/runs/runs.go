// Package runs says which runs tell a mutant from the honest engine, and makes
// them. It is all that a mutant's program needs, so that little is compiled
// again. The requests, with their stop tokens, are made by the honest code.
package runs

import (
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/internal/faults/trial"
)

// Todo is a run to be made.
type Todo struct {
	Setup    trial.Setup
	Requests []*audit.Request
}

// Setups are the runs: between them they reach every branch of a verdict and a
// commit that does not handle an error.
func Setups() []trial.Setup {
	return []trial.Setup{
		{Drafter: "mtp", K: 4, Requests: 3, MaxNew: 26, Concurrency: 2, Stops: true},
		{Drafter: "ngram", K: 5, Requests: 2, MaxNew: 30, PromptLen: 60},
		{Requests: 2, MaxNew: 12, Chunk: 16},
		{Drafter: "mtp", K: 3, Requests: 2, MaxNew: 22, Params: sample.Params{RepetitionPenalty: 1.2, FrequencyPenalty: 0.5}},
		{Drafter: "mtp", K: 3, Requests: 2, MaxNew: 24, Rule: "rejection", Params: sample.Params{Temperature: 1}},
		{Drafter: trial.SampledMTP, K: 3, Requests: 2, MaxNew: 24, Rule: "rejection", Params: sample.Params{Temperature: 0.9}},
		{Drafter: "mtp", K: 3, Requests: 2, MaxNew: 24, Rule: "coupled", Params: sample.Params{Temperature: 0.8, TopP: 0.95}},
		{Drafter: "mtp", K: 3, Requests: 3, MaxNew: 14, PromptLen: 10, Shared: 70, Repeat: true, PrefixCache: true, Concurrency: 1},
		{Drafter: "mtp", K: 3, TightPages: true},
		{Drafter: "mtp", K: 4, Requests: 3, MaxNew: 24, Simulation: "length=2.5"},
	}
}

// Make makes the runs on the model of a folder.
func Make(model string, todo []Todo) ([]*trial.Result, error) {
	m, err := trial.Open(model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var out []*trial.Result
	for _, t := range todo {
		res, err := m.Run(t.Setup, t.Requests, nil, trial.Wiring{})
		if err != nil {
			return nil, err
		}
		out = append(out, res)
	}
	return out, nil
}
