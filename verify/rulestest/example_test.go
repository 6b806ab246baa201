package rulestest_test

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
	"exacta.dev/exacta/verify/rulestest"
)

// README:begin

// Near accepts the token that plain decoding would say, and any draft that is nearly
// as likely as the likeliest. It is the whole of a rule: settings, registration,
// decision.
type Near struct {
	// Share is the least probability of a draft, over that of the likeliest.
	Share float64 `json:"share"`
}

func init() {
	verify.Register(verify.Info{
		Name: "near", Summary: "LOSSY: what plain decoding says, and drafts that are nearly as likely as the likeliest token",
		Settings: func() verify.Settings { return &Near{Share: 0.8} },
	})
}

func (c *Near) Validate() error {
	if !(c.Share > 0 && c.Share <= 1) {
		return fmt.Errorf("share is %v; it must be above 0 and at most 1", c.Share)
	}
	return nil
}

func (c *Near) Rule() engine.Verifier { return near{*c} }

type near struct{ cfg Near }

func (r near) Name() string { return verify.Named("near", &r.cfg) }

// The rule reads logits, and promises nothing of its output: neither the tokens of
// plain decoding (Exact) nor their distribution (what is not Exact and not Lossy).
func (near) NeedsLogits(sample.Params) bool { return true }
func (near) Exact(sample.Params) bool       { return false }
func (near) Lossy() bool                    { return true }

// Verify walks down the draft, which may be a tree: row 0 is the pending token's, row
// i+1 that of draft i.
func (r near) Verify(v *engine.Verification) (engine.Verdict, error) {
	d, row := &v.Draft, 0
	var path, accepted, targets []int32
	for {
		// Plain decoding's token: the sampler applies the request's processors,
		// with the drafts before the row as history.
		own, err := v.Sampler.CoupledSample(v.Logits(row), accepted, v.Position+1+len(accepted))
		if err != nil {
			return engine.Verdict{}, err
		}
		targets = append(targets, own)
		i := d.Child(row, own)
		if i < 0 {
			p, err := v.Sampler.At(1).Process(v.Logits(row), accepted)
			if err != nil {
				return engine.Verdict{}, err
			}
			least := float32(r.cfg.Share) * slices.Max(p)
			for i = d.First(row); i >= 0 && p[d.Tokens[i]] < least; i = d.Sibling(i) {
			}
		}
		if i < 0 {
			kind := engine.NextCorrection
			switch {
			case len(d.Tokens) == 0:
				kind = engine.NextSampled
			case d.First(row) < 0:
				kind = engine.NextBonus
			}
			return engine.Verdict{Accepted: engine.Accepted(len(path)), Path: path, Next: own, Kind: kind, Targets: targets}, nil
		}
		row, path, accepted = i+1, append(path, int32(i)), append(accepted, d.Tokens[i])
	}
}

// README:end

// A rule that is registered can be named, with its settings, in a configuration and on
// the command line. Its test is one line.
func Example() {
	rule, err := verify.New("near:share=0.5")
	fmt.Println(rule.Name(), err)
	fmt.Println(rulestest.Check(func() engine.Verifier { return (&Near{Share: 0.3}).Rule() }))
	// Output:
	// near:share=0.5 <nil>
	// <nil>
}
