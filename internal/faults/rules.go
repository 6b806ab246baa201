package faults

import (
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/verify"
)

// ruled is a rule with another decision.
type ruled struct {
	engine.Verifier
	needs  bool // wants logits
	decide func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error)
}

// NeedsLogits implements engine.Verifier.
func (r *ruled) NeedsLogits(p sample.Params) bool { return r.needs || r.Verifier.NeedsLogits(p) }

// Verify implements engine.Verifier.
func (r *ruled) Verify(v *engine.Verification) (engine.Verdict, error) {
	return r.decide(r.Verifier, v)
}

// withRule wires another decision into every request's rule.
func withRule(needs bool, decide func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error)) trial.Wiring {
	return trial.Wiring{Rule: func(inner engine.Verifier) engine.Verifier {
		return &ruled{Verifier: inner, needs: needs, decide: decide}
	}}
}

// decided is the verdict that accepts n of k drafts.
func decided(n, k int, next int32, targets []int32) engine.Verdict {
	kind := engine.NextCorrection
	switch {
	case k == 0:
		kind = engine.NextSampled
	case n == k:
		kind = engine.NextBonus
	}
	return engine.Verdict{Accepted: engine.Accepted(n), Next: next, Kind: kind, Targets: targets}
}

// forced stamps a verdict with n accepted drafts in the place of the real one,
// as a simulation does; n is held to what was drafted.
func forced(spec string, v *engine.Verification, n int, real engine.Verdict) engine.Verdict {
	k := len(v.Draft.Tokens)
	n = max(0, min(n, k))
	out := decided(n, k, v.Argmax[n], slices.Clone(real.Targets))
	out.Simulation = &engine.Simulation{Spec: spec, Real: real.Accepted, RealNext: real.Next}
	return out
}

// simulating wires a simulation whose number of accepted drafts comes from draw.
func simulating(a *arming, draw func(s verify.Simulation, v *engine.Verification, real engine.Verdict) int) trial.Wiring {
	spec, err := verify.ParseSimulation(a.setup.Simulation)
	return trial.Wiring{Simulation: func(inner, _ engine.Verifier) engine.Verifier {
		return &ruled{Verifier: inner, decide: func(inner engine.Verifier, v *engine.Verification) (engine.Verdict, error) {
			if err != nil {
				return engine.Verdict{}, err
			}
			real, err := inner.Verify(v)
			if err != nil {
				return real, err
			}
			real.Targets = slices.Clone(real.Targets)
			return forced(spec.String(), v, draw(spec, v, real), real), nil
		}}
	}}
}

// honestly draws what the simulation really asks for.
func honestly(s verify.Simulation, v *engine.Verification) int {
	return int(s.Draw(v.Sampler.Params(), v.Position))
}
