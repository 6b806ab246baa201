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

// rejection is speculative sampling, row by row. Where several drafts follow one
// row they are tried in order, each against what the ones before it have left of
// the target's distribution (multi-round rejection, as in SpecInfer,
// arXiv:2305.09781, and EAGLE): after draft x, drawn from q, was rejected, the
// distribution is max(p - q, 0), normalised. With siblings drawn without
// replacement q is the distribution without those before. The rule's parts are
// fields so that the tests can put wrong ones in.
type rejection struct {
	// noise returns a uniform number for a purpose at the step that starts at
	// a committed length: for Verify of a draft, for Recovery after a row.
	noise func(s *sample.Sampler, purpose sample.Purpose, length, offset int) float64
	// residual takes the target's distribution and leaves the unnormalised
	// distribution of the token that replaces a rejected draft.
	residual func(w []float64, q []float32, draft int32)
	weights  []float64 // of the target's token, unnormalised
	left     []float64
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
	at := begin(v)
	for {
		p, err := v.Sampler.Process(v.Logits(at.row), at.tokens)
		if err != nil {
			return engine.Verdict{}, err
		}
		r.weights = widen(r.weights, p)
		i, err := r.try(v, at.row)
		if err != nil {
			return engine.Verdict{}, err
		}
		if i < 0 {
			next := sample.SampleWeights(r.weights, r.noise(v.Sampler, sample.Recovery, v.Position, at.row))
			return at.verdict(next, append(targets, next)), nil
		}
		at.take(i)
		targets = append(targets, drafts[i])
	}
}

// try returns the draft after a row that stands, or -1 and, in r.weights, the
// distribution of the token in their place.
func (r *rejection) try(v *engine.Verification, row int) (int, error) {
	d := &v.Draft
	for i := d.First(row); i >= 0; i = d.Sibling(i) {
		var q []float32
		if d.Probs != nil {
			q = d.Probs[i]
		}
		stands, err := accepts(r.weights, q, d.Tokens[i], r.noise(v.Sampler, sample.Verify, v.Position, i))
		if err != nil {
			return -1, fmt.Errorf("draft %d: %w", i, err)
		}
		if stands {
			return i, nil
		}
		r.replace(q, d.Tokens[i])
	}
	return -1, nil
}

// replace leaves the residual in r.weights. It has no mass only if the weights
// equal q up to rounding; then they are as good.
func (r *rejection) replace(q []float32, draft int32) {
	r.left = append(r.left[:0], r.weights...)
	r.residual(r.left, q, draft)
	for _, w := range r.left {
		if w > 0 {
			r.left, r.weights = r.weights, r.left
			return
		}
	}
}

func widen(dst []float64, p []float32) []float64 {
	dst = dst[:0]
	for _, v := range p {
		dst = append(dst, float64(v))
	}
	return dst
}
