package faults

import (
	"math/rand/v2"

	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/internal/faults/trial"
)

// Healthy returns the setup of healthy run i: strategies, rules, draft lengths and
// their policies, batches and engine options in turn and at random.
func Healthy(i int) trial.Setup {
	r := rand.New(rand.NewPCG(uint64(i), 0x6865616c))
	s := trial.Setup{
		Requests: 2 + i%4/3, MaxNew: 12 + r.IntN(15), K: 1 + r.IntN(7),
		PromptLen: pick(r, 8, 24, 40, 58), PromptStep: 1 + r.IntN(5),
	}
	s.Drafter = [...]string{"mtp", "ngram", "eagle3", "suffix", "mtp", "", "cascade", "medusa", "mtp", "dflash", "mtp-tree", "eagle3-tree", "mtp"}[i%13]
	s.Concurrency = 1 + r.IntN(s.Requests)
	if s.Drafter != "" {
		switch r.IntN(12) {
		case 0:
			s.Length.Auto = true
		case 1:
			s.Length.ByBatch = [][]int{{1, s.K}, {2, s.K / 2}}
		}
	}
	switch i % 5 {
	case 1:
		s.Rule = pick(r, "coupled", "rejection", "block")
		s.Params = sample.Params{Temperature: 0.6 + 0.6*r.Float32(), TopK: pick(r, 0, 0, 40), TopP: pick[float32](r, 1, 0.9)}
		if s.Drafter == "mtp" && r.IntN(2) == 0 {
			s.Drafter = trial.SampledMTP
		}
	case 4:
		if r.IntN(3) == 0 {
			s.Params.Grammar = lettersOnly
		}
	case 2:
		s.Params = sample.Params{RepetitionPenalty: 1.2, PresencePenalty: 0.3, FrequencyPenalty: 0.2 * r.Float32()}
	case 3:
		if s.Drafter != "" {
			s.Simulation = pick(r, "length=1", "length=1.7", "length=2", "rates=0.8", "length=1.25")
			if r.IntN(3) == 0 {
				s.Drafter = trial.Known
			}
		}
	}
	switch r.IntN(6) {
	case 0:
		s.PrefixCache, s.Shared = true, pick(r, 0, 66, 70)
		s.Repeat = r.IntN(2) == 0
	case 1:
		s.Stops = s.Simulation == ""
	case 2:
		s.Chunk, s.BatchTokens = pick(r, 7, 16, 64), pick(r, 40, 80)
	case 3:
		if i%4 == 0 {
			s.TightPages, s.Requests, s.Concurrency, s.MaxNew, s.PromptLen, s.PromptStep = true, 0, 0, 0, 0, 0
		}
	}
	// Requests that no loop can decode bring it back to the host.
	s.Loop = i%4 == 2 || i%13 == 5
	if i%30 == 7 {
		s.Loop = false
		s.Ranks, s.Requests, s.Concurrency, s.MaxNew = 2, 2, 0, 12
	}
	return s
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
