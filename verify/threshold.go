package verify

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

func init() {
	Register(Info{
		Name:     "threshold",
		Summary:  "LOSSY: a draft stands if it is plain decoding's token, or if the target gives it at least probability single, or if it is among the top_n likeliest and at most delta less likely than the first; the output is not of the target's distribution",
		Settings: func() Settings { return &Threshold{Single: 0.3, Delta: 1} },
	})
}

// Threshold configures acceptance by threshold. A draft always stands if it is the
// token that plain decoding with the seed would say (the rules greedy and coupled
// are this and no more), and else by one of two bounds that engines know:
//
//   - its probability is at least Single (threshold_single of SGLang);
//   - it is among the TopN likeliest tokens of its row, and its probability at most
//     Delta below that of the first (relaxed acceptance of TensorRT-LLM).
//
// Where several drafts follow one row, plain decoding's own token goes first, then
// the likeliest that stands. The token after the drafts is plain decoding's. With
// single=1 and top_n=0 the output is plain decoding's.
//
// Probabilities are those that the request samples from; at temperature 0 those of
// temperature 1, since the request's own are 1 and 0.
//
// The rule is lossy. How the drafts were drawn does not matter to it.
type Threshold struct {
	// Single is the probability at which a draft stands, above 0; 1 is off.
	Single float64 `json:"single"`
	// TopN is how many of the likeliest tokens may stand; 0 is off.
	TopN int `json:"top_n"`
	// Delta is how much less likely than the likeliest they may be, 0..1.
	Delta float64 `json:"delta"`
}

// Validate implements Settings.
func (c *Threshold) Validate() error {
	switch {
	case !(c.Single > 0 && c.Single <= 1):
		return fmt.Errorf("single is %v; it must be above 0 and at most 1 (1 is off)", c.Single)
	case c.TopN < 0:
		return fmt.Errorf("top_n is %d; it must be 0 (off) or more", c.TopN)
	case !(c.Delta >= 0 && c.Delta <= 1):
		return fmt.Errorf("delta is %v; it must be 0..1", c.Delta)
	}
	return nil
}

// Rule implements Settings.
func (c *Threshold) Rule() engine.Verifier { return &threshold{*c, Named("threshold", c)} }

// threshold is the rule.
type threshold struct {
	cfg  Threshold
	name string
}

var _ engine.Verifier = (*threshold)(nil)

// Name implements engine.Verifier.
func (r *threshold) Name() string { return r.name }

// NeedsLogits implements engine.Verifier: at temperature 0 too.
func (*threshold) NeedsLogits(sample.Params) bool { return true }

// Exact implements engine.Verifier.
func (*threshold) Exact(sample.Params) bool { return false }

// Lossy says that the output is not the target's.
func (*threshold) Lossy() bool { return true }

// TargetNoise says that drafts that guess the target's own draw are accepted, so
// that a drafter may draw with the same noise.
func (*threshold) TargetNoise() bool { return true }

// Verify implements engine.Verifier. Targets are plain decoding's tokens at each row
// of the path.
func (r *threshold) Verify(v *engine.Verification) (engine.Verdict, error) {
	s := v.Sampler
	if s.Params().Greedy() {
		s = s.At(1)
	}
	d, at := &v.Draft, begin(v)
	var targets []int32
	for {
		t, err := own(v, at.row, at.tokens)
		if err != nil {
			return engine.Verdict{}, err
		}
		targets = append(targets, t)
		i := d.Child(at.row, t)
		if i < 0 && d.First(at.row) >= 0 {
			p, err := s.Process(v.Logits(at.row), at.tokens)
			if err != nil {
				return engine.Verdict{}, err
			}
			if i, err = r.likeliest(d, at.row, p); err != nil {
				return engine.Verdict{}, err
			}
		}
		if i < 0 {
			return at.verdict(t, targets), nil
		}
		at.take(i)
	}
}

// likeliest returns the likeliest draft after a row that stands, or -1.
func (r *threshold) likeliest(d *engine.Draft, row int, p []float32) (int, error) {
	best := -1
	for i := d.First(row); i >= 0; i = d.Sibling(i) {
		if _, err := draftMass(len(p), nil, d.Tokens[i]); err != nil {
			return -1, fmt.Errorf("draft %d: %w", i, err)
		}
		if x := d.Tokens[i]; r.stands(p, x) && (best < 0 || p[x] > p[d.Tokens[best]]) {
			best = i
		}
	}
	return best, nil
}

// stands decides about one draft.
func (r *threshold) stands(p []float32, x int32) bool {
	if r.cfg.Single < 1 && float64(p[x]) >= r.cfg.Single {
		return true
	}
	if r.cfg.TopN == 0 || p[x] == 0 {
		return false
	}
	top, before := float32(0), 0 // tokens ahead of x; of equals the lower id is
	for i, y := range p {
		top = max(top, y)
		if y > p[x] || y == p[x] && int32(i) < x {
			before++
		}
	}
	return before < r.cfg.TopN && float64(p[x]) >= float64(top)-r.cfg.Delta
}
