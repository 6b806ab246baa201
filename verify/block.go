package verify

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:    "block",
		Summary: "block verification (arXiv:2403.10444): decides about the draft as a whole, accepts at least as many tokens as rejection; keeps the distribution of plain sampling",
		New:     func() engine.Verifier { return newBlock() },
	})
}

// block is block verification (Sun et al. 2024, algorithm 2). With M_b the
// target's and M_s the drafter's distribution, after i drafts X^i,
//
//	p_0 = 1,  p_i = min(1, p_(i-1) M_b(X_i) / M_s(X_i))
//	S_i = sum over x of max(0, p_i M_b(x | X^i) - M_s(x | X^i))
//	h_i = S_i / (S_i + 1 - p_i)  for i < k,  h_k = p_k
//
// and the longest prefix with u_i < h_i is accepted. The token after it is drawn
// from the terms of S_i, or from M_b after a whole draft. Of a tree it sees the
// longest branch or, where the tokens were drawn, that of the first ones.
type block struct {
	noise func(s *sample.Sampler, purpose sample.Purpose, length, row int) float64
	// residual puts the terms of S_n into weights and returns their sum:
	// leave, but for tests.
	residual func(b *block, n int, q []float32, draft int32) float64
	rows     [][]float32 // M_b, unnormalised, by row
	sums     []float64   // of rows
	stands   []float64   // p_i
	weights  []float64
}

var _ engine.Verifier = (*block)(nil)

func newBlock() *block { return &block{noise: streamed, residual: (*block).leave} }

// Name implements engine.Verifier.
func (*block) Name() string { return "block" }

// NeedsLogits implements engine.Verifier.
func (*block) NeedsLogits(p sample.Params) bool { return !p.Plain() }

// Exact implements engine.Verifier: sampled tokens are others than those of plain
// sampling with the same seed, of the same distribution.
func (*block) Exact(p sample.Params) bool { return p.Greedy() }

// Verify implements engine.Verifier. An error says what is wrong with the draft's
// distributions or the logits.
func (b *block) Verify(v *engine.Verification) (engine.Verdict, error) {
	if v.Sampler.Params().Greedy() {
		return argmax(v)
	}
	path := v.Draft.Branch()
	if v.Draft.Probs != nil {
		path = firsts(&v.Draft)
	}
	v, along := branch(v, path)
	drafts, probs := v.Draft.Tokens, v.Draft.Probs
	if probs != nil && len(probs) != len(drafts) {
		return engine.Verdict{}, fmt.Errorf("the draft has %d tokens and %d distributions; it needs one each, or none", len(drafts), len(probs))
	}
	if err := b.load(v); err != nil {
		return engine.Verdict{}, err
	}
	n := len(b.stands) - 1
	for ; n > 0; n-- {
		h := b.stands[n]
		if n < len(drafts) {
			s := b.residual(b, n, at(probs, n), drafts[n])
			h = s / (s + 1 - h)
		}
		if b.noise(v.Sampler, sample.Verify, v.Position, n-1) < h {
			break
		}
	}
	if n == len(drafts) || !(b.residual(b, n, at(probs, n), drafts[n]) > 0) {
		b.weights = widen(b.weights, b.rows[n])
	}
	next := sample.SampleWeights(b.weights, b.noise(v.Sampler, sample.Recovery, v.Position, n))
	targets := append(append(make([]int32, 0, n+1), drafts[:n]...), next)
	return along(decided(n, len(drafts), next, targets)), nil
}

func at(probs [][]float32, row int) []float32 {
	if probs == nil {
		return nil
	}
	return probs[row]
}

// load reads the target's distribution at each row, and how far the draft stands
// up to there. It ends before a draft that the target gives nothing: h is 0 from
// there on, and rows behind a token that a grammar forbids are of no text.
func (b *block) load(v *engine.Verification) error {
	drafts := v.Draft.Tokens
	for len(b.rows) <= len(drafts) {
		b.rows = append(b.rows, nil)
	}
	b.sums, b.stands = b.sums[:0], append(b.stands[:0], 1)
	for row := range len(drafts) + 1 {
		p, err := v.Sampler.Process(v.Logits(row), drafts[:row])
		if err != nil {
			return err
		}
		b.rows[row] = append(b.rows[row][:0], p...)
		b.sums = append(b.sums, mass(p))
		if row == len(drafts) {
			break
		}
		ratio, err := likelihood(p, at(v.Draft.Probs, row), drafts[row])
		if err != nil {
			return fmt.Errorf("draft %d: %w", row, err)
		}
		stands := min(1, b.stands[row]*ratio)
		if stands == 0 {
			break
		}
		b.stands = append(b.stands, stands)
	}
	return nil
}

// leave puts the terms of S_n into b.weights and returns their sum.
func (b *block) leave(n int, q []float32, draft int32) float64 {
	p, sum, stands := b.rows[n], b.sums[n], b.stands[n]
	b.weights = b.weights[:0]
	total, qs := 0.0, 1.0
	if q != nil {
		qs = mass(q)
	}
	for i, v := range p {
		other := 0.0
		switch {
		case q != nil:
			other = float64(q[i]) / qs
		case int32(i) == draft:
			other = 1
		}
		w := max(0, float64(stands*(float64(v)/sum))-other)
		b.weights = append(b.weights, w)
		total += w
	}
	return total
}
