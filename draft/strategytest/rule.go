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
	d, row := &v.Draft, 0
	var tokens, path []int32
	for {
		// At temperature 0 this is the argmax after penalties.
		t, err := v.Sampler.CoupledSample(v.Logits(row), tokens, v.Position+1+len(tokens))
		if err != nil {
			return engine.Verdict{}, err
		}
		if i := d.Child(row, t); i >= 0 {
			row, tokens, path = i+1, append(tokens, t), append(path, int32(i))
			continue
		}
		kind := engine.NextCorrection
		switch {
		case len(d.Tokens) == 0:
			kind = engine.NextSampled
		case d.First(row) < 0:
			kind = engine.NextBonus
		}
		return engine.Verdict{Accepted: engine.Accepted(len(path)), Path: path, Next: t, Kind: kind, Targets: append(tokens, t)}, nil
	}
}
