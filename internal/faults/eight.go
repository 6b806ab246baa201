package faults

import (
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// known is a simulated run whose drafts are what plain decoding says, so that
// forcing them leaves the output as it is without simulation.
func known(k int, spec string) trial.Setup {
	s := simulated(k, spec)
	s.Drafter, s.Requests, s.MaxNew = trial.Known, 4, 24
	return s
}

// eightPercent are three forms in which a simulated run is 8 % too fast while
// its output is right: the arithmetic of decode speed is accept length over step
// time, and each form bends another term.
func eightPercent() []Fault {
	return []Fault{
		{
			ID: "8a", Name: "counters inflated by 8 %", Report: "realised 2.5 is counted as 2.7",
			Setup: known(4, "length=2.5"), Expect: []string{counts},
			Outside: "visible: tokens received over verification steps (the bursts of a stream) is below the counter's accept length",
			arm: func(*arming) trial.Wiring {
				owed := 0.0
				return trial.Wiring{Interposer: &hooks{count: func(_ *engine.Sequence, r *engine.Record) {
					if r.Phase != engine.Decode {
						return
					}
					if owed += 0.08 * float64(r.Accepted.Length()); owed >= 1 && int32(r.Accepted) < r.KExecuted {
						owed--
						r.Accepted++
						r.ForcedAccepted++
					}
				}}}
			},
		},
		{
			ID: "8b", Name: "realised length 8 % above the declared", Report: "2.5 declared, 2.7 realised; counters agree",
			Setup: known(4, "length=2.5"), Expect: []string{counts},
			Outside: "visible only to one who knows the declared length: tokens over steps is 1.08 times it; the counters agree with the stream",
			arm: func(a *arming) trial.Wiring {
				return simulating(a, func(s verify.Simulation, v *engine.Verification, _ engine.Verdict) int {
					return honestly(verify.Simulation{Length: 1.08 * s.Length}, v)
				})
			},
		},
		{
			ID: "8c", Name: "simulated steps do 8 % less work", Report: "the head is not run when the outcome is forced (kin: sglang #40598)",
			Setup: known(4, "length=2.5"), Expect: []string{work},
			Outside: "not visible: counters, stream and output agree; only a step's time against a real step's of the same width, on the same machine, shows it",
			arm:     headless,
		},
	}
}

// headless leaves the LM head out of steps whose outcome is forced: 0.79 of 9.9
// million multiply-adds a row, 7.9 %. What is emitted is the draft, and after it
// what the drafter would have said next.
func headless(a *arming) trial.Wiring {
	w := onQueue(func(t *tap) {
		t.matMul = func(dst kernels.Buf, weight kernels.Weight, x kernels.Buf, l kernels.Linear) {
			if dst.Kind == kernels.F32 && t.decode > 0 && t.rows == t.decode {
				return
			}
			t.Queue.MatMul(dst, weight, x, l)
		}
	}, nil)
	w.Simulation = func(inner, _ engine.Verifier) engine.Verifier {
		return &ruled{Verifier: inner, decide: func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
			spec, err := verify.ParseSimulation(a.setup.Simulation)
			k := len(v.Draft.Tokens)
			if err != nil || k == 0 && v.Position < v.Seq.PromptLen() {
				return inner.Verify(v) // the prompt's last row is computed
			}
			plain, done := a.plain[v.Seq.Request().ID], len(v.Seq.Output())
			targets := slices.Clone(plain[done:min(len(plain), done+k+1)])
			n := min(honestly(spec, v), len(targets)-1)
			out := decided(n, k, targets[n], targets)
			out.Simulation = &engine.Simulation{Spec: spec.String(), Real: engine.Accepted(len(targets) - 1), RealNext: targets[len(targets)-1]}
			return out, nil
		}}
	}
	return w
}

// idleDrafter proposes without running the drafter's model.
func idleDrafter(a *arming) func(engine.Drafter) engine.Drafter {
	return func(d engine.Drafter) engine.Drafter {
		return trial.Wrap(d, trial.Over{Propose: func(_ engine.Drafter, _ kernels.Queue, asks []*engine.Ask) error {
			for _, q := range asks {
				out, done := a.plain[q.Seq.Request().ID], len(q.Seq.Output())
				q.Draft.Tokens = nil
				for i := range q.K {
					q.Draft.Tokens = append(q.Draft.Tokens, out[min(done+i, len(out)-1)])
				}
			}
			return nil
		}})
	}
}
