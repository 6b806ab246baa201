package verify

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:    "rejection",
		Summary: "speculative sampling (arXiv:2211.17192): accepts with probability min(1, p/q), else draws from the residual; keeps the distribution of plain sampling",
		New:     func() engine.Verifier { return newRejection() },
	})
}

// rejection is speculative sampling, row by row. Its parts are fields so that the
// tests can put wrong ones in.
type rejection struct {
	// noise returns a uniform number for a purpose at a row of the step that
	// starts at a committed length.
	noise func(s *sample.Sampler, purpose sample.Purpose, length, row int) float64
	// residual fills dst with the unnormalised distribution of the token
	// that replaces a rejected draft.
	residual func(dst []float64, p, q []float32, draft int32)
	weights  []float64
}

var _ engine.Verifier = (*rejection)(nil)

func newRejection() *rejection { return &rejection{noise: streamed, residual: residual} }

func streamed(s *sample.Sampler, purpose sample.Purpose, length, row int) float64 {
	return s.Stream(purpose, length, row).Uniform(0)
}

// Name implements engine.Verifier.
func (*rejection) Name() string { return "rejection" }

// NeedsLogits implements engine.Verifier.
func (*rejection) NeedsLogits(p sample.Params) bool { return !p.Plain() }

// Exact implements engine.Verifier: sampled tokens are others than those of plain
// sampling with the same seed, of the same distribution.
func (*rejection) Exact(p sample.Params) bool { return p.Greedy() }

// Verify implements engine.Verifier. An error says what is wrong with the draft's
// distribution or the logits.
func (r *rejection) Verify(v *engine.Verification) (engine.Verdict, error) {
	if v.Sampler.Params().Greedy() {
		return argmax(v)
	}
	drafts, probs := v.Draft.Tokens, v.Draft.Probs
	if probs != nil && len(probs) != len(drafts) {
		return engine.Verdict{}, fmt.Errorf("the draft has %d tokens and %d distributions; it needs one each, or none", len(drafts), len(probs))
	}
	targets := make([]int32, 0, len(drafts)+1)
	for row := 0; ; row++ {
		p, err := v.Sampler.Process(v.Logits(row), drafts[:row])
		if err != nil {
			return engine.Verdict{}, err
		}
		if row < len(drafts) {
			var q []float32
			if probs != nil {
				q = probs[row]
			}
			stands, err := accepts(p, q, drafts[row], r.noise(v.Sampler, sample.Verify, v.Position, row))
			if err != nil {
				return engine.Verdict{}, fmt.Errorf("draft %d: %w", row, err)
			}
			if stands {
				targets = append(targets, drafts[row])
				continue
			}
			r.replace(p, q, drafts[row])
		} else {
			r.weights = widen(r.weights, p)
		}
		next := sample.SampleWeights(r.weights, r.noise(v.Sampler, sample.Recovery, v.Position, row))
		return decided(row, len(drafts), next, append(targets, next)), nil
	}
}

// replace leaves the residual in r.weights. It has no mass only if p equals q up
// to rounding; then p is as good.
func (r *rejection) replace(p, q []float32, draft int32) {
	r.weights = widen(r.weights, p)
	r.residual(r.weights, p, q, draft)
	for _, w := range r.weights {
		if w > 0 {
			return
		}
	}
	r.weights = widen(r.weights, p)
}

func widen(dst []float64, p []float32) []float64 {
	dst = dst[:0]
	for _, v := range p {
		dst = append(dst, float64(v))
	}
	return dst
}
