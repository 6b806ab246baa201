package faults

import (
	"math"
	"math/rand/v2"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/internal/faults/trial"
)

// sampled is a run under the rejection rule.
func sampled() trial.Setup {
	return trial.Setup{Drafter: "mtp", K: 3, Rule: "rejection", MaxNew: 24, Requests: 3, Params: sample.Params{Temperature: 1}}
}

// drawn is a run whose drafts are drawn from the module's distribution.
func drawn(temperature float32) trial.Setup {
	s := sampled()
	s.Drafter, s.Params.Temperature = trial.SampledMTP, temperature
	return s
}

// lettersOnly is a grammar that the model leaves at every second token.
const lettersOnly = `[a-z \n\t]*`

// onVerdict wires a change of the decision.
func onVerdict(f func(seq *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict) func(*arming) trial.Wiring {
	return func(*arming) trial.Wiring { return trial.Wiring{Interposer: &hooks{verdict: f}} }
}

// ruleFaults are B14 to B17, B22, B24 and two beside the catalogue: wrong
// decisions.
func ruleFaults() []Fault {
	return []Fault{
		{
			ID: "B14", Name: "first draft never verified", Report: "ohdearquant/lattice #243",
			Setup: rejecting(),
			arm: onVerdict(func(_ *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
				if k := len(v.Draft.Tokens); d.Accepted == 0 && k > 0 {
					return decided(1, k, v.Argmax[1], d.Targets)
				}
				return d
			}),
		},
		{
			ID: "B15", Name: "greedy draft judged as a sampled one", Report: "z-lab/dflash #74; mlx-swift-lm #459",
			Setup: sampled(),
			arm: func(a *arming) trial.Wiring {
				flat := slices.Repeat([]float32{1 / float32(a.machine.Entry.Vocab())}, a.machine.Entry.Vocab())
				return trial.Wiring{Interposer: &hooks{draft: func(_ *engine.Sequence, _ int, d engine.Draft) engine.Draft {
					d.Probs = nil
					for range d.Tokens {
						d.Probs = append(d.Probs, flat)
					}
					return d
				}}}
			},
		},
		{
			ID: "B15", Name: "sampled at a temperature, judged without it", Report: "DeepSpec #31; transformers #47932",
			Setup: drawn(0.6),
			arm: func(a *arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{draft: func(_ *engine.Sequence, _ int, d engine.Draft) engine.Draft {
					probs := make([][]float32, len(d.Probs))
					for i, q := range d.Probs {
						probs[i] = heated(q, float64(a.setup.Params.Temperature))
					}
					d.Probs = probs
					return d
				}}}
			},
		},
		{
			ID: "B15", Name: "judged with the distribution of the draft before", Report: "TensorRT-LLM #15098 (wrong logits slice)",
			Setup: drawn(1),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{draft: func(_ *engine.Sequence, _ int, d engine.Draft) engine.Draft {
					for i := len(d.Probs) - 1; i > 0; i-- {
						if d.Probs[i-1][d.Tokens[i]] > 0 {
							d.Probs[i] = d.Probs[i-1]
						}
					}
					return d
				}}}
			},
		},
		{
			ID: "B16", Name: "penalties without the drafts before the row", Report: "sglang, one penalty vector for all draft positions; vllm #26586",
			Setup: trial.Setup{Drafter: trial.Known, K: 7, MaxNew: 32, Requests: 5, Params: sample.Params{RepetitionPenalty: 1.3, FrequencyPenalty: 0.7}},
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return walked(v, func(row int) (int32, error) { return v.Sampler.Argmax(v.Logits(row), nil) })
				})
			},
		},
		{
			ID: "B16", Name: "penalties skipped on drafts", Report: "lmdeploy #4551",
			Setup: trial.Setup{Drafter: "mtp", K: 4, MaxNew: 32, Requests: 3, Params: sample.Params{RepetitionPenalty: 1.3, PresencePenalty: 0.5}},
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return walked(v, func(row int) (int32, error) {
						if row < len(v.Draft.Tokens) && v.Draft.Tokens[row] == v.Argmax[row] {
							return v.Argmax[row], nil
						}
						return v.Sampler.Argmax(v.Logits(row), v.Draft.Tokens[:row])
					})
				})
			},
		},
		{
			ID: "B16", Name: "grammar mask on the first row only", Report: "vllm #36138 (open)",
			Setup: trial.Setup{Drafter: trial.Known, K: 4, MaxNew: 20, Requests: 3, Params: sample.Params{Grammar: lettersOnly}},
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return walked(v, func(row int) (int32, error) {
						if row > 0 {
							return v.Argmax[row], nil
						}
						return v.Sampler.Argmax(v.Logits(0), nil)
					})
				})
			},
		},
		{
			ID: "B17", Name: "probability threshold accepts", Report: "sglang #7702, #8068 (accept-threshold-single)",
			Setup: rejecting(),
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return relaxed(v, func(row []float32, id int32) bool { return probability(row, id) >= 0.05 })
				})
			},
		},
		{
			ID: "B17", Name: "top two within a delta accept", Report: "TensorRT-LLM #3865 (relaxed acceptance); vllm #5015 (typical)",
			Setup: rejecting(),
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return relaxed(v, func(row []float32, id int32) bool {
						above := 0
						for _, l := range row {
							if l > row[id] {
								above++
							}
						}
						return above < 2 && slices.Max(row)-row[id] < 2
					})
				})
			},
		},
		{
			ID: "B22", Name: "one depth corrupt at one k", Report: "sglang #32038 (only 6 draft tokens were bad)",
			Setup: trial.Setup{Drafter: "mtp", K: 6, MaxNew: 32, Requests: 3},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{span: func(_ *engine.Sequence, start int, ids []int32) (int, []int32) {
					if len(ids) == 7 {
						ids = slices.Clone(ids)
						ids[3] = ids[2]
					}
					return start, ids
				}}}
			},
		},
		{
			ID: "B24", Name: "acceptance and recovery share their noise", Report: "vllm #47386, #54282",
			Setup: sampled(),
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return rejection(v, func(_ sample.Purpose, row int) float64 {
						return v.Sampler.Stream(sample.Verify, v.Position, row).Uniform(0)
					})
				})
			},
		},
		{
			ID: "B24", Name: "drafts and acceptance share their noise", Report: "vllm #47386, #54282 (before the salt)",
			Setup: drawn(1),
			arm: func(*arming) trial.Wiring {
				return withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					return rejection(v, func(p sample.Purpose, row int) float64 {
						if p == sample.Verify {
							p = sample.Draft
						}
						return v.Sampler.Stream(p, v.Position, row).Uniform(0)
					})
				})
			},
		},
		{
			ID: "B24", Name: "all rows share one draw", Report: "vLLM, one noise row per request reused over positions",
			Setup: sampled(),
			arm: func(a *arming) trial.Wiring {
				r := rand.New(rand.NewPCG(a.seed, 24))
				u, fresh := r.Float64(), false
				w := withRule(true, func(_ engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					if fresh {
						u, fresh = r.Float64(), false
					}
					return rejection(v, func(sample.Purpose, int) float64 { return u })
				})
				w.Interposer = &hooks{span: func(_ *engine.Sequence, start int, ids []int32) (int, []int32) {
					fresh = true
					return start, ids
				}}
				return w
			},
		},
		{
			ID: "E1", Name: "bonus from the row before", Report: "off by one at the end of an accepted run",
			Setup: rejecting(), Expect: []string{tokens},
			arm: onVerdict(func(_ *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
				if k := len(v.Draft.Tokens); k > 0 && int(d.Accepted) == k {
					d.Next = v.Argmax[k-1]
				}
				return d
			}),
		},
		{
			ID: "E2", Name: "accepted before it was verified", Report: "the last step's outcome used for this one",
			Setup: rejecting(), Expect: []string{tokens},
			arm: func(*arming) trial.Wiring {
				last := map[int64]int{}
				return trial.Wiring{Interposer: &hooks{verdict: func(seq *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
					n, k := last[seq.ID()], len(v.Draft.Tokens)
					last[seq.ID()] = int(d.Accepted)
					n = min(n, k)
					return decided(n, k, v.Argmax[n], d.Targets)
				}}}
			},
		},
	}
}

// walked accepts drafts while they equal the choice of their row.
func walked(v *engine.Verification, choose func(row int) (int32, error)) (engine.Verdict, error) {
	var targets []int32
	for row := 0; ; row++ {
		id, err := choose(row)
		if err != nil {
			return engine.Verdict{}, err
		}
		targets = append(targets, id)
		if row == len(v.Draft.Tokens) || id != v.Draft.Tokens[row] {
			return decided(row, len(v.Draft.Tokens), id, targets), nil
		}
	}
}

// relaxed accepts drafts that are good enough, and has the argmax where one is
// not.
func relaxed(v *engine.Verification, enough func(row []float32, id int32) bool) (engine.Verdict, error) {
	return walked(v, func(row int) (int32, error) {
		if row < len(v.Draft.Tokens) && enough(v.Logits(row), v.Draft.Tokens[row]) {
			return v.Draft.Tokens[row], nil
		}
		return v.Argmax[row], nil
	})
}

// probability is a token's, by the logits of a row.
func probability(row []float32, id int32) float64 {
	top, sum := float64(slices.Max(row)), 0.0
	for _, l := range row {
		sum += math.Exp(float64(l) - top)
	}
	return math.Exp(float64(row[id])-top) / sum
}

// heated is a distribution that was sampled at a temperature, as it is without.
func heated(q []float32, temperature float64) []float32 {
	out, sum := make([]float32, len(q)), 0.0
	for i, v := range q {
		if v > 0 {
			w := math.Pow(float64(v), temperature)
			out[i] = float32(w)
			sum += w
		}
	}
	for i := range out {
		out[i] = float32(float64(out[i]) / sum)
	}
	return out
}

// rejection is speculative sampling, with noise as it is given.
func rejection(v *engine.Verification, noise func(p sample.Purpose, row int) float64) (engine.Verdict, error) {
	var targets []int32
	for row := 0; ; row++ {
		p, err := v.Sampler.Process(v.Logits(row), v.Draft.Tokens[:row])
		if err != nil {
			return engine.Verdict{}, err
		}
		k := len(v.Draft.Tokens)
		rest := slices.Clone(p)
		if row < k {
			id, q := v.Draft.Tokens[row], float32(1)
			if v.Draft.Probs != nil {
				q = v.Draft.Probs[row][id]
			}
			if noise(sample.Verify, row)*float64(q) < float64(p[id]) {
				targets = append(targets, id)
				continue
			}
			if v.Draft.Probs == nil {
				rest[id] = 0
			} else {
				for i, q := range v.Draft.Probs[row] {
					rest[i] = max(0, rest[i]-q)
				}
			}
		}
		next := sample.Sample(rest, noise(sample.Recovery, row))
		if next < 0 { // nothing is left over
			next = sample.Sample(p, noise(sample.Recovery, row))
		}
		return decided(row, k, next, append(targets, next)), nil
	}
}
