package verify

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:     "typical",
		Summary:  "LOSSY: typical acceptance of Medusa (arXiv:2401.10774): a draft stands while its probability is above min(epsilon, delta exp(-entropy)); the output is not of the target's distribution",
		Settings: func() Settings { return &Typical{Epsilon: 0.09, Delta: 0.3} },
	})
}

// Typical configures typical acceptance (Cai et al. 2024, Medusa,
// arXiv:2401.10774; posterior_threshold and posterior_alpha of its code, whose
// defaults it takes). Of a draft x whose row has the target's distribution p, with
// entropy H in nats, it asks
//
//	p(x) > min(epsilon, delta exp(-H))
//
// so that a draft must be likely where the target is sure, and need not be where it
// is not. The longest path of such drafts is accepted, of equally long ones the
// likeliest. It is for temperatures above 0; at 0 it is greedy.
//
// The token after the drafts is what plain sampling with the seed draws there: a
// step without drafts gives plain decoding's token. (The reference code cuts that
// distribution by the same threshold; top_p and min_p do as much for a request.)
//
// The rule is lossy. How the drafts were drawn does not matter to it.
type Typical struct {
	// Epsilon is the probability above which a draft always stands, 0..1.
	Epsilon float64 `json:"epsilon"`
	// Delta scales the threshold by entropy, 0 or more; the paper has the
	// square root of epsilon.
	Delta float64 `json:"delta"`
}

// Validate implements Settings.
func (c *Typical) Validate() error {
	switch {
	case !(c.Epsilon >= 0 && c.Epsilon <= 1):
		return fmt.Errorf("epsilon is %v; it must be 0..1", c.Epsilon)
	case !(c.Delta >= 0 && c.Delta <= math.MaxFloat64):
		return fmt.Errorf("delta is %v; it must be 0 or more", c.Delta)
	}
	return nil
}

// Rule implements Settings.
func (c *Typical) Rule() engine.Verifier { return &typical{cfg: *c, name: Named("typical", c)} }

// typical is the rule.
type typical struct {
	cfg   Typical
	name  string
	nodes []typicalNode // by row
}

// typicalNode is a row of the tree: how far its path goes, and how likely it is.
type typicalNode struct {
	stands bool // all drafts up to the row do
	depth  int
	log    float64 // of the path's probability
}

var _ engine.Verifier = (*typical)(nil)

// Name implements engine.Verifier.
func (r *typical) Name() string { return r.name }

// NeedsLogits implements engine.Verifier.
func (*typical) NeedsLogits(p sample.Params) bool { return !p.Plain() }

// Exact implements engine.Verifier.
func (*typical) Exact(sample.Params) bool { return false }

// Lossy says that the output is not the target's.
func (*typical) Lossy() bool { return true }

// Verify implements engine.Verifier. Targets are what plain sampling would say at
// each row of the path.
func (r *typical) Verify(v *engine.Verification) (engine.Verdict, error) {
	if v.Sampler.Params().Greedy() {
		return argmax(v)
	}
	best, err := r.longest(v)
	if err != nil {
		return engine.Verdict{}, err
	}
	return owned(v, leading(&v.Draft, best))
}

// longest returns the row at which the accepted path ends.
func (r *typical) longest(v *engine.Verification) (best int, err error) {
	d := &v.Draft
	r.nodes = append(r.nodes[:0], typicalNode{stands: true})
	for range d.Tokens {
		r.nodes = append(r.nodes, typicalNode{})
	}
	for row := range r.nodes {
		n := r.nodes[row]
		if !n.stands {
			continue
		}
		if b := r.nodes[best]; n.depth > b.depth || n.depth == b.depth && n.log > b.log {
			best = row
		}
		if d.First(row) < 0 {
			continue
		}
		p, err := v.Sampler.Process(v.Logits(row), leading(d, row).tokens)
		if err != nil {
			return 0, err
		}
		least := r.least(p)
		for i := d.First(row); i >= 0; i = d.Sibling(i) {
			if _, err := draftMass(len(p), nil, d.Tokens[i]); err != nil {
				return 0, fmt.Errorf("draft %d: %w", i, err)
			}
			x := float64(p[d.Tokens[i]])
			if x > least {
				r.nodes[i+1] = typicalNode{true, n.depth + 1, n.log + math.Log(x)}
			}
		}
	}
	return best, nil
}

// least is the probability that a draft must be above.
func (r *typical) least(p []float32) float64 {
	entropy := 0.0
	for _, x := range p {
		if x > 0 {
			entropy -= float64(float64(x) * math.Log(float64(x)))
		}
	}
	return min(r.cfg.Epsilon, float64(r.cfg.Delta*math.Exp(-entropy)))
}
