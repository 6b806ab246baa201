package strategytest

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// rule accepts drafts while they are what plain decoding chooses at their row: the
// argmax, or with a temperature the token that the request's seed draws for the
// position. (Package verify has the rules that engines use; strategies do not
// depend on it.)
type rule struct{}

var _ engine.Verifier = rule{}

// Name implements engine.Verifier.
func (rule) Name() string { return "strategytest" }

// NeedsLogits implements engine.Verifier.
func (rule) NeedsLogits(sample.Params) bool { return true }

// Exact implements engine.Verifier.
func (rule) Exact(sample.Params) bool { return true }

// Verify implements engine.Verifier.
func (rule) Verify(v *engine.Verification) (engine.Verdict, error) {
	drafts := v.Draft.Tokens
	for row := 0; ; row++ {
		// At temperature 0 this is the argmax after penalties.
		t, err := v.Sampler.CoupledSample(v.Logits(row), drafts[:row], v.Position+1+row)
		if err != nil {
			return engine.Verdict{}, err
		}
		if row < len(drafts) && t == drafts[row] {
			continue
		}
		kind := engine.NextCorrection
		switch {
		case len(drafts) == 0:
			kind = engine.NextSampled
		case row == len(drafts):
			kind = engine.NextBonus
		}
		return engine.Verdict{
			Accepted: engine.Accepted(row), Next: t, Kind: kind,
			Targets: append(append([]int32(nil), drafts[:row]...), t),
		}, nil
	}
}
