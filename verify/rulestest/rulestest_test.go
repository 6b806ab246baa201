package rulestest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// Every registered rule keeps the contract, those with settings with some of them.
func TestRegistered(t *testing.T) {
	for _, name := range append(verify.Names(), "typical:epsilon=0.01", "threshold:single=0.15", "threshold:single=1,top_n=2") {
		t.Run(name, func(t *testing.T) {
			Run(t, func() engine.Verifier {
				rule, err := verify.New(name)
				require.NoError(t, err)
				return rule
			})
		})
	}
}

// rude is a rule with a fault, on top of another.
type rude struct {
	engine.Verifier
	exact, lossy *bool
	change       func(v *engine.Verification, d *engine.Verdict)
	before       func(v *engine.Verification)
	blind        bool
}

func (r *rude) Exact(p sample.Params) bool {
	if r.exact != nil {
		return *r.exact
	}
	return r.Verifier.Exact(p)
}

func (r *rude) Lossy() bool {
	if r.lossy != nil {
		return *r.lossy
	}
	return engine.Lossy(r.Verifier)
}

func (r *rude) NeedsLogits(p sample.Params) bool { return !r.blind && r.Verifier.NeedsLogits(p) }

func (r *rude) Verify(v *engine.Verification) (engine.Verdict, error) {
	if r.before != nil {
		r.before(v)
	}
	d, err := r.Verifier.Verify(v)
	if err == nil && r.change != nil {
		r.change(v, &d)
	}
	return d, err
}

// Faults are told.
func TestFaults(t *testing.T) {
	yes, no := true, false
	calls := 0
	for name, c := range map[string]struct {
		rule string
		rude rude
		want string
	}{
		"accepts what it should not": {"coupled", rude{change: func(v *engine.Verification, d *engine.Verdict) {
			if n := len(v.Draft.Tokens); n > 0 && v.Draft.Parents == nil {
				d.Accepted, d.Path, d.Kind, d.Targets = engine.Accepted(n), nil, engine.NextBonus, append(v.Draft.Tokens[:n:n], d.Next)
			}
		}}, "has probability 0 under"},
		"accepts one too few": {"coupled", rude{change: func(v *engine.Verification, d *engine.Verdict) {
			if d.Accepted > 0 && v.Draft.Parents == nil {
				d.Next, d.Accepted, d.Kind = d.Targets[d.Accepted-1], d.Accepted-1, engine.NextCorrection
			}
		}}, "3 of 4 right drafts accepted"},
		"jumps in a tree": {"coupled", rude{change: func(v *engine.Verification, d *engine.Verdict) {
			if v.Draft.Parents != nil && len(d.Path) > 1 {
				d.Path = append([]int32{d.Path[1]}, d.Path[1:]...)
			}
		}}, "which it does not follow"},
		"says the wrong kind":    {"greedy", rude{change: func(_ *engine.Verification, d *engine.Verdict) { d.Kind = engine.NextBonus }}, `is of kind "bonus"; after 0 of 0 drafts it is "sampled"`},
		"leaves targets out":     {"greedy", rude{change: func(_ *engine.Verification, d *engine.Verdict) { d.Targets = nil }}, "0 targets"},
		"remembers":              {"greedy", rude{change: func(_ *engine.Verification, d *engine.Verdict) { calls++; d.Next = int32(calls) }}, "and asked again"},
		"changes the draft":      {"greedy", rude{before: func(v *engine.Verification) { clear(v.Draft.Tokens) }}, "the rule changed the draft"},
		"reads logits unasked":   {"coupled", rude{blind: true}, "it has logits: false"},
		"promises tokens":        {"rejection", rude{exact: &yes}, "plain decoding says"},
		"hides that it is lossy": {"typical", rude{lossy: &no}, "not distributed as plain sampling"},
		"is lossy and exact":     {"coupled", rude{lossy: &yes}, "is lossy and says that its output is plain decoding's"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(func() engine.Verifier {
				inner, err := verify.New(c.rule)
				require.NoError(t, err)
				r := c.rude
				r.Verifier = inner
				return &r
			})
			require.ErrorContains(t, err, c.want)
		})
	}
}

// naive is speculative sampling of chains with a fault.
type naive struct {
	forgets bool           // the drafts before a row
	noise   sample.Purpose // that decides about acceptance
	whole   bool           // replaces a rejected draft by a draw from the target
}

func (naive) Name() string                   { return "naive" }
func (naive) NeedsLogits(sample.Params) bool { return true }
func (naive) Exact(p sample.Params) bool     { return p.Greedy() }

func (r naive) Verify(v *engine.Verification) (engine.Verdict, error) {
	d := v.Draft
	if d.Parents != nil { // the first branch
		d = engine.Draft{}
	}
	var targets []int32
	for n := 0; ; n++ {
		before := d.Tokens[:n]
		if r.forgets {
			before = nil
		}
		p, err := v.Sampler.Process(v.Logits(n), before)
		if err != nil {
			return engine.Verdict{}, err
		}
		kind := engine.NextCorrection
		switch {
		case n < len(d.Tokens):
			x, q := d.Tokens[n], float32(1)
			if d.Probs != nil {
				q = d.Probs[n][x]
			}
			if float32(v.Sampler.Stream(r.noise, v.Position, n).Uniform(0))*q < p[x] {
				targets = append(targets, x)
				continue
			}
			for i := range p {
				switch {
				case r.whole:
				case d.Probs != nil:
					p[i] = max(0, p[i]-d.Probs[n][i])
				case int32(i) == x:
					p[i] = 0
				}
			}
		case len(v.Draft.Tokens) == 0:
			kind = engine.NextSampled
		case v.Draft.Parents == nil:
			kind = engine.NextBonus
		}
		next := sample.Sample(p, v.Sampler.Stream(sample.Recovery, v.Position, n).Uniform(0))
		return engine.Verdict{Accepted: engine.Accepted(n), Next: next, Kind: kind, Targets: append(targets, next)}, nil
	}
}

// The suite takes a rule of its own making, and sees what is wrong with others.
func TestNaive(t *testing.T) {
	for name, c := range map[string]struct {
		rule naive
		want string
	}{
		"nothing wrong":                  {naive{noise: sample.Verify}, ""},
		"forgets drafts":                 {naive{noise: sample.Verify, forgets: true}, "temperature 0, penalties: "},
		"residual is the target's":       {naive{noise: sample.Verify, whole: true}, "not distributed as plain sampling"},
		"decides with the draft's noise": {naive{noise: sample.Draft}, "temperature: drawn drafts: "},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(func() engine.Verifier { return c.rule })
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}
