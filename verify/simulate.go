package verify

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// Simulate returns the rule with its outcome replaced by a drawn one, for
// requests with at most k drafts a step. The error, a SimulationError, says what
// can't be honoured.
//
// Every step still runs the rule on the target's rows, and keeps what it decided
// in Verdict.Simulation. The accepted tokens are then the first drafts, as many
// as Draw says, and the next token is the target's own choice after them: what
// the rule gives there in a step without drafts, so what plain decoding would
// give after those tokens, noise included. With length=1 the output is therefore
// plain decoding's. Targets are those of the rule's own decision.
//
// A step may have verified fewer drafts than its draw, because the drafter had
// fewer or the output's end was near: then all of them are accepted. The record
// shows it: ForcedAccepted equals KExecuted and is below Draw (SimulatedAccepted
// says so). Such a step counts in no estimate of the mean: Most says which steps
// can't be among them.
//
// Of a tree the forced drafts are those of the longest branch.
//
// The result promises nothing about the output: Exact is false.
func Simulate(rule engine.Verifier, s Simulation, k int) (engine.Verifier, error) {
	if err := s.Validate(k); err != nil {
		return nil, err
	}
	return &simulated{rule: rule, spec: s, text: s.String(), k: k}, nil
}

// SimulationOf returns what a rule simulates, as records carry it, and "" for a
// rule that decides itself.
func SimulationOf(rule engine.Verifier) string {
	if s, ok := rule.(*simulated); ok {
		return s.text
	}
	return ""
}

// simulated is a rule whose outcome is drawn.
type simulated struct {
	rule engine.Verifier
	spec Simulation
	text string
	k    int
	row  []float32 // the logits after the forced drafts: a rule may overwrite its rows
}

var (
	_ engine.Verifier = (*simulated)(nil)
	_ Limited         = (*simulated)(nil)
)

// Name implements engine.Verifier: the rule that runs.
func (s *simulated) Name() string { return s.rule.Name() }

// Simulation returns what was asked for, as records carry it.
func (s *simulated) Simulation() string { return s.text }

// TargetNoise passes on what the rule says of its noise, so that drafters draft
// as they do without simulation.
func (s *simulated) TargetNoise() bool {
	r, ok := s.rule.(interface{ TargetNoise() bool })
	return ok && r.TargetNoise()
}

// Lossy passes on what the rule says of itself.
func (s *simulated) Lossy() bool { return engine.Lossy(s.rule) }

// NeedsLogits implements engine.Verifier.
func (s *simulated) NeedsLogits(p sample.Params) bool { return s.rule.NeedsLogits(p) }

// Exact implements engine.Verifier.
func (*simulated) Exact(sample.Params) bool { return false }

// Serves implements Limited. Forced drafts would leave a grammar, after which
// there is no next token.
func (s *simulated) Serves(p sample.Params) error {
	if p.Grammar != "" {
		return fmt.Errorf("simulation %s accepts drafts that the grammar forbids; simulate without a grammar", s.text)
	}
	return Serves(s.rule, p)
}

// Verify implements engine.Verifier.
func (s *simulated) Verify(v *engine.Verification) (engine.Verdict, error) {
	if n := len(v.Draft.Tokens); n > s.k || len(v.Argmax) <= n {
		return engine.Verdict{}, fmt.Errorf("simulation %s of %d drafts a step: %d drafts and %d rows", s.text, s.k, n, len(v.Argmax))
	}
	chain, along := branch(v, v.Draft.Branch())
	n := len(chain.Draft.Tokens)
	forced, _ := SimulatedAccepted(s.spec, v.Sampler.Params(), v.Position, n)
	after := s.after(chain, int(forced))
	real, err := s.rule.Verify(v)
	if err != nil {
		return real, err
	}
	targets := slices.Clone(real.Targets)
	plain, err := s.rule.Verify(after)
	if err != nil {
		return plain, err
	}
	out := along(decided(int(forced), n, plain.Next, targets))
	out.Simulation = &engine.Simulation{Spec: s.text, Real: real.Accepted, RealNext: real.Next}
	return out, nil
}

// after is the step without drafts that would follow the first n drafts.
func (s *simulated) after(v *engine.Verification, n int) *engine.Verification {
	a := &engine.Verification{
		Seq: v.Seq, Position: v.Position + n, Argmax: v.Argmax[n : n+1],
		Sampler: v.Sampler.Ahead(v.Draft.Tokens[:n]),
	}
	if s.rule.NeedsLogits(v.Sampler.Params()) {
		s.row = append(s.row[:0], v.Logits(n)...)
		a.Logits = func(int) []float32 { return s.row }
	}
	return a
}
