package faults

import (
	"math"
	"math/rand/v2"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// simulated is the run of most simulation faults.
func simulated(k int, spec string) trial.Setup {
	return trial.Setup{Drafter: "mtp", K: k, Simulation: spec, Requests: 3, MaxNew: 20}
}

// simulationFaults are B1 to B8 and B26: the forms in which simulated acceptance
// was wrong.
func simulationFaults() []Fault {
	return append([]Fault{
		{
			ID: "B1", Name: "fraction rounded once and kept", Report: "sglang #33463 (DSPARK: 4.7 ran as 5)",
			Setup: simulated(4, "length=2.6"),
			arm: func(a *arming) trial.Wiring {
				cached := -1 // rounded at the first step, as a module buffer was
				return simulating(a, func(s verify.Simulation, _ *engine.Verification, _ engine.Verdict) int {
					if cached < 0 {
						cached = int(math.Round(s.Length - 1))
					}
					return cached
				})
			},
		},
		{
			ID: "B1", Name: "fraction cut off", Report: "sglang #33463 (3.36 ran as 3)",
			Setup: simulated(4, "length=3.4"),
			arm: func(a *arming) trial.Wiring {
				return simulating(a, func(s verify.Simulation, _ *engine.Verification, _ engine.Verdict) int { return int(s.Length - 1) })
			},
		},
		{
			ID: "B2", Name: "length read as accepted drafts", Report: "TensorRT-LLM #9608; unit note of InferenceX",
			Setup: simulated(4, "length=2.6"),
			arm: func(a *arming) trial.Wiring {
				return simulating(a, func(s verify.Simulation, v *engine.Verification, _ engine.Verdict) int { return honestly(s, v) + 1 })
			},
		},
		{
			ID: "B2", Name: "accepted drafts read as length", Report: "TensorRT-LLM #9608 (the other half of the code)",
			Setup: simulated(4, "length=2.6"),
			arm: func(a *arming) trial.Wiring {
				return simulating(a, func(s verify.Simulation, v *engine.Verification, _ engine.Verdict) int { return honestly(s, v) - 1 })
			},
		},
		{
			ID: "B3", Name: "knob ignored, run still labelled", Report: "sglang #32595 (DFLASH did not read it)",
			Setup: simulated(4, "length=1"),
			arm: func(a *arming) trial.Wiring {
				return simulating(a, func(_ verify.Simulation, _ *engine.Verification, real engine.Verdict) int { return int(real.Accepted) })
			},
		},
		{
			ID: "B3", Name: "value does not parse and means off", Report: "TensorRT-LLM #13569 (2.5 became 0)",
			Setup: simulated(4, "length=2.5"),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Simulation: func(inner, _ engine.Verifier) engine.Verifier { return inner }}
			},
		},
		{
			ID: "B4", Name: "length of one k enforced at another", Report: "InferenceX #2812, and a recipe with 2.49 (k 3) at k 2",
			Setup: simulated(3, "length=2.49"),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Submit: func(r *engine.Request) { r.K-- }}
			},
		},
		{
			ID: "B4", Name: "adaptive depth reads the simulated length", Report: "sglang --speculative-adaptive with a simulated length",
			Setup: simulated(5, "length=2.6"),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{draft: func(_ *engine.Sequence, _ int, d engine.Draft) engine.Draft {
					d.Tokens = d.Tokens[:min(len(d.Tokens), 2)] // the tier of a length of 2.6
					return d
				}}}
			},
		},
		beyondVerified(), beyondExecuted(),
		{
			ID: "B6", Name: "placeholder id in every place", Report: "sglang #20154, #34740 (id 100, stale KV beside it: #29645)",
			Setup: simulated(4, "length=2.6"),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{emit: func(_ *engine.Sequence, _, emit []int32, why engine.Finish) ([]int32, engine.Finish) {
					for i := range emit {
						emit[i] = placeholder
					}
					return emit, why
				}}}
			},
		},
		{
			ID: "B6", Name: "one id drafted everywhere", Report: "ATOM #2301 (open)",
			Setup: simulated(4, "length=3.5"),
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Interposer: &hooks{draft: func(_ *engine.Sequence, _ int, d engine.Draft) engine.Draft {
					for i := range d.Tokens {
						d.Tokens[i] = placeholder
					}
					return d
				}}}
			},
		},
		{
			ID: "B7", Name: "drafter not run under simulation", Report: "ATOM #2301; the contrary of vLLM #41035",
			Setup: known(4, "length=2.6"),
			arm:   func(a *arming) trial.Wiring { return trial.Wiring{Drafter: idleDrafter(a)} },
		},
		{
			ID: "B7", Name: "work done and thrown away under simulation", Report: "sglang #40598 (HIP: rejection sampling ran for nothing)",
			Setup: simulated(4, "length=2.6"),
			arm: func(*arming) trial.Wiring {
				return onQueue(func(t *tap) {
					t.matMul = func(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
						t.Queue.MatMul(dst, w, x, l)
						if dst.Kind == kernels.F32 {
							t.Queue.MatMul(dst, w, x, l)
						}
					}
				}, nil)
			},
		},
		{
			ID: "B8", Name: "one draw for the whole batch", Report: "sglang simulate_acc_len, all algorithms",
			Setup: simulated(4, "length=2.5"),
			arm: func(a *arming) trial.Wiring {
				n, fresh := 0, true
				w := simulating(a, func(s verify.Simulation, v *engine.Verification, _ engine.Verdict) int {
					if fresh {
						n, fresh = honestly(s, v), false
					}
					return n
				})
				w.Interposer = &hooks{span: func(_ *engine.Sequence, start int, tokens []int32) (int, []int32) {
					fresh = true
					return start, tokens
				}}
				return w
			},
		},
		{
			ID: "B8", Name: "geometric spread", Report: "ATOM #1850, #1948; vLLM #38045 before #40662",
			Setup: simulated(5, "length=2.6"),
			arm: func(a *arming) trial.Wiring {
				r := rand.New(rand.NewPCG(a.seed, 8))
				p := geometric(1.6, a.setup.K)
				return simulating(a, func(_ verify.Simulation, v *engine.Verification, _ engine.Verdict) int {
					n := 0
					for n < len(v.Draft.Tokens) && r.Float64() < p {
						n++
					}
					return n
				})
			},
		},
		{
			ID: "B8", Name: "clamped normal spread", Report: "sglang simulate_acc_method multinomial",
			Setup: simulated(4, "length=3"),
			arm: func(a *arming) trial.Wiring {
				r := rand.New(rand.NewPCG(a.seed, 9))
				return simulating(a, func(s verify.Simulation, _ *engine.Verification, _ engine.Verdict) int {
					return int(math.Round(s.Length + r.NormFloat64() - 1))
				})
			},
		},
	}, staleBonus())
}

// placeholder is the id that sglang's fixed mode puts everywhere.
const placeholder = 100

// geometric returns the rate at which trying up to k drafts in turn accepts mean.
func geometric(mean float64, k int) float64 {
	lo, hi := 0.0, 1.0
	for range 60 {
		mid, sum := (lo+hi)/2, 0.0
		for i := 1; i <= k; i++ {
			sum += math.Pow(mid, float64(i))
		}
		if sum < mean {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// beyondVerified commits drafts whose rows got no logits: a trimmed schedule
// verifies two rows, the forced length asks for more.
func beyondVerified() Fault {
	return Fault{
		ID: "B5", Name: "commits drafts that were never verified", Report: "sglang DSPARK's start-up guard; ATOM #1948",
		Setup: simulated(5, "length=4.4"),
		arm: func(a *arming) trial.Wiring {
			w := trial.Wiring{Simulation: func(inner, _ engine.Verifier) engine.Verifier {
				return &ruled{Verifier: inner, decide: func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					spec, err := verify.ParseSimulation(a.setup.Simulation)
					if err != nil {
						return engine.Verdict{}, err
					}
					cut := *v
					cut.Draft.Tokens = v.Draft.Tokens[:len(v.Argmax)-1]
					real, err := inner.Verify(&cut)
					if err != nil {
						return real, err
					}
					k := len(v.Draft.Tokens)
					n := min(honestly(spec, v), k)
					out := decided(n, k, v.Argmax[min(n, len(v.Argmax)-1)], real.Targets)
					out.Simulation = &engine.Simulation{Spec: spec.String(), Real: real.Accepted, RealNext: real.Next}
					return out, nil
				}}
			}}
			w.Interposer = &hooks{logitRows: func(_ *engine.Sequence, rows int) int { return min(rows, 2) }}
			return w
		},
	}
}

// beyondExecuted forces a length above the drafts that were executed: the slots
// past them hold what was there before.
func beyondExecuted() Fault {
	return Fault{
		ID: "B5", Name: "forced length above executed k", Report: "TensorRT-LLM #15098 (slots beyond the run held garbage)",
		Setup: simulated(5, "length=4.4"),
		arm: func(a *arming) trial.Wiring {
			spec, _ := verify.ParseSimulation(a.setup.Simulation)
			return trial.Wiring{Interposer: &hooks{
				draft: func(_ *engine.Sequence, k int, d engine.Draft) engine.Draft {
					slots := make([]int32, len(d.Tokens), max(k, len(d.Tokens)))
					copy(slots, d.Tokens)
					d.Tokens = slots[:min(len(slots), 1)]
					return d
				},
				verdict: func(_ *engine.Sequence, v *engine.Verification, d engine.Verdict) engine.Verdict {
					n := min(honestly(spec, v), cap(v.Draft.Tokens))
					d.Accepted, d.Kind = engine.Accepted(n), engine.NextBonus
					return d
				},
				keep: func(_ *engine.Sequence, rows, kept int) int { return min(rows, kept) },
			}}
		},
	}
}

// staleBonus puts the bonus of the real run behind the forced drafts.
func staleBonus() Fault {
	return Fault{
		ID: "B26", Name: "stale bonus behind forced drafts", Report: "sglang DSPARK (dspark_verify.py at 0143365d)",
		Setup: simulated(4, "length=1.5"),
		arm: func(*arming) trial.Wiring {
			return trial.Wiring{Simulation: func(_, honest engine.Verifier) engine.Verifier {
				return &ruled{Verifier: honest, decide: func(honest engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
					d, err := honest.Verify(v)
					if err == nil && d.Simulation != nil {
						d.Next = d.Simulation.RealNext
					}
					return d, err
				}}
			}}
		},
	}
}
