package faults

import (
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
)

// counting wires another way to count a record.
func counting(count func(seq *engine.Sequence, r *engine.Record)) func(*arming) trial.Wiring {
	return func(*arming) trial.Wiring { return trial.Wiring{Interposer: &hooks{count: count}} }
}

// summing wires another way to sum a run up.
func summing(sum func(s *acceptance.Stats, c *audit.Claim)) func(*arming) trial.Wiring {
	return func(*arming) trial.Wiring { return trial.Wiring{Summary: sum} }
}

// countFaults are B9 and B10: the engine does right and counts wrong, or emits
// what stands behind the end.
func countFaults() []Fault {
	mtp := trial.Setup{Drafter: "mtp", K: 4, MaxNew: 24, Requests: 3}
	ngram := trial.Setup{Drafter: "ngram", K: 4, MaxNew: 40, PromptLen: 60, Requests: 3}
	stops := trial.Setup{Drafter: "mtp", K: 5, MaxNew: 28, Requests: 4, Stops: true}
	return []Fault{
		{
			ID: "B9", Name: "accept length without the bonus", Report: "vllm #17908", Setup: mtp,
			arm: summing(func(_ *acceptance.Stats, c *audit.Claim) { c.AcceptLength-- }),
		},
		{
			ID: "B9", Name: "rate with the bonus above and below the line", Report: "sglang #23530", Setup: mtp,
			arm: summing(func(s *acceptance.Stats, c *audit.Claim) {
				for i := range c.AcceptanceByPosition {
					c.AcceptanceByPosition[i] = float64(s.Prefix[i]+1) / float64(s.Reached[i]+1)
				}
			}),
		},
		{
			ID: "B9", Name: "histogram off by one", Report: "sglang #24965", Setup: mtp,
			arm: summing(func(s *acceptance.Stats, c *audit.Claim) {
				var above int64
				for i := range c.AcceptanceByPosition { // bin i holds the steps that accepted i-1
					above += s.Histogram[min(i, len(s.Histogram)-1)]
					c.AcceptanceByPosition[i] = 1 - float64(above-s.Histogram[min(i, len(s.Histogram)-1)])/float64(s.Verifications)
				}
			}),
		},
		{
			ID: "B9", Name: "rate above one", Report: "sglang #11572", Setup: mtp,
			arm: counting(func(_ *engine.Sequence, r *engine.Record) {
				if r.Phase == engine.Decode {
					r.Accepted++
					r.ForcedAccepted, r.RealAccepted = r.Accepted, r.Accepted
				}
			}),
		},
		{
			ID: "B9", Name: "this step's accepted over another step's drafts", Report: "TensorRT-LLM #17082", Setup: ngram,
			arm: func(*arming) trial.Wiring {
				last := map[int64]*engine.Record{}
				return trial.Wiring{Interposer: &hooks{count: func(seq *engine.Sequence, r *engine.Record) {
					if r.Phase != engine.Decode {
						return
					}
					c := *r
					if l := last[seq.ID()]; l != nil {
						r.Accepted, r.RealAccepted, r.ForcedAccepted = l.Accepted, l.RealAccepted, l.ForcedAccepted
					}
					last[seq.ID()] = &c
				}}}
			},
		},
		{
			ID: "B9", Name: "counters stay zero", Report: "TensorRT-LLM #17082 (PyTorch flow)", Setup: mtp,
			arm: counting(func(_ *engine.Sequence, r *engine.Record) { r.Accepted, r.RealAccepted, r.ForcedAccepted = 0, 0, 0 }),
		},
		{
			ID: "B9", Name: "cap counted instead of what was offered", Report: "lucebox #496; trtllm-bench; TensorRT-LLM #14724", Setup: ngram,
			arm: counting(func(_ *engine.Sequence, r *engine.Record) {
				if r.Phase == engine.Decode {
					r.KExecuted, r.TreeNodes = r.KPlanned, r.KPlanned
				}
			}),
		},
		{
			ID: "B9", Name: "padding counted as drafts", Report: "vLLM pad_spec_decode", Setup: ngram,
			arm: counting(func(_ *engine.Sequence, r *engine.Record) {
				if r.Phase != engine.Decode {
					return
				}
				for len(r.ProposedIDs) < int(r.KPlanned) {
					r.ProposedIDs = append(r.ProposedIDs, -1)
				}
				r.KExecuted, r.TreeNodes = r.KPlanned, r.KPlanned
			}),
		},
		{
			ID: "B9", Name: "drafts counted after the end", Report: "OpenVINO #3293", Setup: mtp,
			arm: func(*arming) trial.Wiring {
				ended := map[int64]bool{}
				return trial.Wiring{Interposer: &hooks{
					emit: func(seq *engine.Sequence, _, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
						ended[seq.ID()] = why != ""
						return emit, why
					},
					count: func(seq *engine.Sequence, r *engine.Record) {
						if r.Phase == engine.Decode && ended[seq.ID()] {
							r.KPlanned += int32(seq.Request().K)
							r.KExecuted += int32(seq.Request().K)
							r.TreeNodes = r.KExecuted
						}
					},
				}}
			},
		},
		rawMask(),
		{
			ID: "B9", Name: "partial acceptance counted as none", Report: "llama.cpp #25682", Setup: mtp,
			arm: counting(func(_ *engine.Sequence, r *engine.Record) {
				if r.Accepted < engine.Accepted(r.KExecuted) {
					r.Accepted, r.RealAccepted, r.ForcedAccepted = 0, 0, 0
				}
			}),
		},
		{
			ID: "B9", Name: "counted again after a preemption", Report: "vllm, output recomputed after preemption",
			Setup: trial.Setup{Drafter: "mtp", K: 3, TightPages: true},
			arm: counting(func(seq *engine.Sequence, r *engine.Record) {
				if r.Phase == engine.Prefill && r.NextKind != engine.NextNone && r.Preemptions > 0 {
					r.EmittedIDs = slices.Clone(seq.Output())
				}
			}),
		},
		{
			ID: "B10", Name: "tokens behind the stop are emitted", Report: "sglang #33758, #2723; koboldcpp #1276",
			Setup: stops,
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{emit: func(_ *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
					if why == engine.FinishStop {
						return decided, why
					}
					return emit, why
				}}}
			},
		},
		{
			ID: "B10", Name: "stop inside the draft is not seen", Report: "sglang #33758 (stop and length in one step)",
			Setup: stops,
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{emit: func(seq *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
					room := seq.Request().MaxNew - len(seq.Output())
					if why == engine.FinishStop && len(emit) < len(decided) && len(decided) < room {
						return decided, ""
					}
					return emit, why
				}}}
			},
		},
		{
			ID: "B10", Name: "tokens over the limit are emitted", Report: "sglang #33758",
			Setup: trial.Setup{Drafter: "mtp", K: 6, MaxNew: 23, Requests: 4},
			arm:   overLimit,
		},
		{
			ID: "B10", Name: "counted and not emitted behind the stop", Report: "vllm #56101 (open)",
			Setup: stops,
			arm: func(*arming) trial.Wiring {
				all := map[int64][]int32{}
				return trial.Wiring{Interposer: &hooks{
					emit: func(seq *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
						all[seq.ID()] = decided
						return emit, why
					},
					count: func(seq *engine.Sequence, r *engine.Record) {
						if len(r.EmittedIDs) > 0 {
							r.EmittedIDs = slices.Clone(all[seq.ID()])
						}
					},
				}}
			},
		},
	}
}

// rawMask counts every draft that equals the target's choice at its row, also
// behind the first that does not.
func rawMask() Fault {
	return Fault{
		ID: "B9", Name: "accepted counted behind the first rejection", Report: "vllm #2658, #10604",
		Setup: trial.Setup{Drafter: "mtp", K: 5, MaxNew: 24, Requests: 3},
		arm: func(*arming) trial.Wiring {
			equal := map[int64]int{}
			return trial.Wiring{Interposer: &hooks{
				verdict: func(seq *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
					n := 0
					for i, id := range v.Draft.Tokens {
						if id == v.Argmax[i] {
							n++
						}
					}
					equal[seq.ID()] = n
					return d
				},
				count: func(seq *engine.Sequence, r *engine.Record) {
					if r.Phase == engine.Decode {
						r.Accepted = engine.Accepted(equal[seq.ID()])
						r.RealAccepted, r.ForcedAccepted = r.Accepted, r.Accepted
					}
				},
			}}
		},
	}
}

// overLimit looks at the limit between steps only: the scheduler plans drafts as
// if there were room, and what a step decided is emitted whole.
func overLimit(a *arming) trial.Wiring {
	return trial.Wiring{
		Submit: func(r *engine.Request) { r.MaxNew += r.K + 1 },
		Interposer: &hooks{emit: func(seq *engine.Sequence, decided, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
			if len(seq.Output())+len(decided) >= a.setup.MaxNew {
				return decided, engine.FinishLength
			}
			return emit, why
		}},
	}
}
