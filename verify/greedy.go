package verify

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:    "greedy",
		Summary: "accepts drafts while they are the target's argmax; temperature 0 only; gives the tokens of plain decoding",
		New:     func() engine.Verifier { return greedy{} },
	})
}

// greedy is the rule for temperature 0.
type greedy struct{}

var (
	_ engine.Verifier = greedy{}
	_ Limited         = greedy{}
)

// Name implements engine.Verifier.
func (greedy) Name() string { return "greedy" }

// NeedsLogits implements engine.Verifier: penalties do.
func (greedy) NeedsLogits(p sample.Params) bool { return !p.Plain() }

// Exact implements engine.Verifier.
func (greedy) Exact(p sample.Params) bool { return p.Greedy() }

// Serves implements Limited.
func (greedy) Serves(p sample.Params) error {
	if p.Greedy() {
		return nil
	}
	return fmt.Errorf("rule greedy serves temperature 0, not %v; rejection keeps the distribution of sampling, coupled also its tokens", p.Temperature)
}

// Verify implements engine.Verifier.
func (g greedy) Verify(v *engine.Verification) (engine.Verdict, error) {
	if err := g.Serves(v.Sampler.Params()); err != nil {
		return engine.Verdict{}, err
	}
	return argmax(v)
}

// argmax accepts drafts while they are the argmax at their row.
func argmax(v *engine.Verification) (engine.Verdict, error) {
	drafts := v.Draft.Tokens
	if v.Sampler.Params().Plain() {
		n := 0
		for n < len(drafts) && drafts[n] == v.Argmax[n] {
			n++
		}
		return decided(n, len(drafts), v.Argmax[n], v.Argmax), nil
	}
	return walk(v, func(row int) (int32, error) {
		return v.Sampler.Argmax(v.Logits(row), drafts[:row])
	})
}
