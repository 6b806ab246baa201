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

// Twin says that the device decides the same by the argmax of the raw logits.
func (greedy) Twin(p sample.Params) engine.Twin {
	if p.Plain() {
		return engine.ArgmaxTwin
	}
	return engine.NoTwin
}

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

// argmax accepts drafts while they are the argmax at the row before them.
func argmax(v *engine.Verification) (engine.Verdict, error) {
	if v.Sampler.Params().Plain() {
		r := begin(v)
		for {
			i := v.Draft.Child(r.row, v.Argmax[r.row])
			if i < 0 {
				return r.verdict(v.Argmax[r.row], v.Argmax), nil
			}
			r.take(i)
		}
	}
	return walk(v, func(row int, before []int32) (int32, error) {
		return v.Sampler.Argmax(v.Logits(row), before)
	})
}
