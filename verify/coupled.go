package verify

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:    "coupled",
		Summary: "accepts drafts while they are the token that plain sampling with the same seed draws; gives the tokens of plain decoding at any temperature",
		New:     func() engine.Verifier { return coupled{} },
	})
}

// coupled samples every row with noise that belongs to the position, and accepts
// drafts that guessed right.
type coupled struct{}

var _ engine.Verifier = coupled{}

// Name implements engine.Verifier.
func (coupled) Name() string { return "coupled" }

// NeedsLogits implements engine.Verifier.
func (coupled) NeedsLogits(p sample.Params) bool { return !p.Plain() }

// Exact implements engine.Verifier.
func (coupled) Exact(sample.Params) bool { return true }

// TargetNoise says that tokens are drawn with noise of purpose sample.Target, so
// that a drafter may draw its guess with the same: the output does not depend on
// drafts.
func (coupled) TargetNoise() bool { return true }

// Twin says that the device decides the same by the raw logits.
func (coupled) Twin(p sample.Params) engine.Twin {
	switch {
	case p.Plain():
		return engine.ArgmaxTwin
	case p.Drawn():
		return engine.DrawTwin
	}
	return engine.NoTwin
}

// Verify implements engine.Verifier. The token after n drafts has position
// v.Position + 1 + n.
func (coupled) Verify(v *engine.Verification) (engine.Verdict, error) {
	if v.Sampler.Params().Greedy() {
		return argmax(v)
	}
	return walk(v, func(row int, before []int32) (int32, error) {
		return v.Sampler.CoupledSample(v.Logits(row), before, v.Position+1+len(before))
	})
}
