package rulestest

import (
	"fmt"
	"reflect"
	"slices"

	"exacta.dev/exacta/engine"
)

// step asks the rule about a draft and returns the tokens that it decides.
func (c *checker) step(s *scene, kind drafting, d engine.Draft) ([]int32, error) {
	kept := clone(d)
	ask := func(rule engine.Verifier) (engine.Verdict, error) {
		v, err := decide(rule, s.target.verification(rule, s.sampler, s.history, d))
		v.Targets, v.Path = slices.Clone(v.Targets), slices.Clone(v.Path)
		return v, err
	}
	v, err := ask(c.rule)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(kept, clone(d)) {
		return nil, fmt.Errorf("the rule changed the draft")
	}
	for _, other := range []engine.Verifier{c.rule, c.newRule()} {
		again, err := ask(other)
		if err != nil {
			return nil, fmt.Errorf("asked again: %w", err)
		}
		if !reflect.DeepEqual(v, again) {
			return nil, fmt.Errorf("the verdict is %+v, and asked again %+v", v, again)
		}
	}
	row, said, err := walk(&d, &v)
	if err != nil {
		return nil, err
	}
	if err := shape(&d, &v, row); err != nil {
		return nil, err
	}
	if err := c.possible(s, said); err != nil {
		return nil, err
	}
	if !c.rule.Exact(c.params) {
		return said, nil
	}
	switch n := len(d.Tokens); {
	case kind.all && int(v.Accepted) < n:
		return nil, fmt.Errorf("%d of %d right drafts accepted", v.Accepted, n)
	case kind.none && v.Accepted > 0:
		return nil, fmt.Errorf("%d of %d wrong drafts accepted", v.Accepted, n)
	}
	return said, nil
}

// decide calls the rule. A rule that reads the logits that it said it does not need
// panics: there are none.
func decide(rule engine.Verifier, v *engine.Verification) (d engine.Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the rule panics: %v (it has logits: %v)", r, v.Logits != nil)
		}
	}()
	return rule.Verify(v)
}

func clone(d engine.Draft) engine.Draft {
	c := engine.Draft{Tokens: slices.Clone(d.Tokens), Parents: slices.Clone(d.Parents), Expect: d.Expect}
	for _, q := range d.Probs {
		c.Probs = append(c.Probs, slices.Clone(q))
	}
	return c
}

// walk follows a verdict down the draft, to the row of the last accepted one.
func walk(d *engine.Draft, v *engine.Verdict) (row int, said []int32, err error) {
	n := int(v.Accepted)
	if n < 0 || n > len(d.Tokens) || v.Path != nil && len(v.Path) != n {
		return 0, nil, fmt.Errorf("%d drafts are accepted of %d, along the path %v", n, len(d.Tokens), v.Path)
	}
	for j := range n {
		i := j
		if v.Path != nil {
			i = int(v.Path[j])
		}
		if i < 0 || i >= len(d.Tokens) || d.Parent(i) != row-1 {
			return 0, nil, fmt.Errorf("draft %d is accepted after row %d, which it does not follow", i, row)
		}
		row, said = i+1, append(said, d.Tokens[i])
	}
	return row, append(said, v.Next), nil
}

// shape checks what a verdict says beside its tokens.
func shape(d *engine.Draft, v *engine.Verdict, row int) error {
	want := engine.NextCorrection
	switch {
	case len(d.Tokens) == 0:
		want = engine.NextSampled
	case d.First(row) < 0:
		want = engine.NextBonus
	}
	switch n := len(v.Targets); {
	case v.Simulation != nil:
		return fmt.Errorf("the verdict says that it was forced")
	case v.Kind != want && !(v.Kind == engine.NextBonus && d.Parents != nil):
		// A rule that sees one path of a tree may call its end a bonus.
		return fmt.Errorf("the next token is of kind %q; after %d of %d drafts it is %q", v.Kind, v.Accepted, len(d.Tokens), want)
	case n <= int(v.Accepted) || n > len(d.Tokens)+1:
		return fmt.Errorf("%d targets; they are one for each of the %d rows along the path, or for each row", n, v.Accepted+1)
	}
	return nil
}

// possible checks that plain decoding could say these tokens: that it has a positive
// probability of each, where the ones before it are the history. At temperature 0
// that is the argmax, unless the rule is lossy.
func (c *checker) possible(s *scene, said []int32) error {
	sampler := s.sampler
	if sampler.Params().Greedy() && engine.Lossy(c.rule) {
		sampler = sampler.At(1)
	}
	for i, id := range said {
		p, err := sampler.Process(s.target.logits(join(s.history, said[:i])), said[:i])
		if err != nil {
			return err
		}
		if id < 0 || int(id) >= len(p) {
			return fmt.Errorf("token %d is outside the vocabulary of %d", id, len(p))
		}
		if !(p[id] > 0) {
			return fmt.Errorf("token %d after %v has probability 0 under the request's parameters", id, said[:i])
		}
		if c.ends(id, len(p)) {
			return nil
		}
	}
	return nil
}
