package faults

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/verify"
)

// rankFaults are B19: ranks that decide for themselves.
func rankFaults() []Fault {
	return []Fault{
		{
			ID: "B19", Name: "ranks draw simulated lengths for themselves", Report: "sglang, overwrite behind the TP broadcast; HIP note on deadlocks",
			Setup: trial.Setup{Drafter: "mtp", K: 3, Ranks: 2, Requests: 2, MaxNew: 14, Simulation: "length=2.5"},
			arm: func(a *arming) trial.Wiring {
				return trial.Wiring{Ranked: func(rank int) trial.Wiring {
					return simulating(a, func(s verify.Simulation, v *engine.Verification, _ engine.Verdict) int {
						p := v.Sampler.Params()
						p.Seed += uint64(rank) // the rank's own generator
						return int(s.Draw(p, v.Position))
					})
				}}
			},
		},
		{
			ID: "B19", Name: "ranks sample with their own seeds", Report: "sglang, HIP broadcast note",
			Setup: trial.Setup{
				Drafter: "mtp", K: 3, Ranks: 2, Requests: 2, MaxNew: 14, Rule: "rejection", Params: sample.Params{Temperature: 1},
			},
			arm: func(*arming) trial.Wiring {
				return trial.Wiring{Ranked: func(rank int) trial.Wiring {
					return trial.Wiring{Submit: func(r *engine.Request) { r.Params.Seed += uint64(rank) << 32 }}
				}}
			},
		},
	}
}
