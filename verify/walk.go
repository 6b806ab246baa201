package verify

import "exacta.dev/exacta/engine"

// route is a walk down a draft, from the pending token along accepted drafts. A
// chain is the draft in which each row has one draft after it.
type route struct {
	draft  *engine.Draft
	row    int     // of the last token
	tokens []int32 // the accepted drafts
	path   []int32 // their indices, of a tree
}

func begin(v *engine.Verification) route { return route{draft: &v.Draft} }

// take accepts draft i, which follows the last row.
func (r *route) take(i int) {
	r.row = i + 1
	if r.draft.Parents == nil {
		r.tokens = r.draft.Tokens[:r.row]
		return
	}
	r.tokens = append(r.tokens, r.draft.Tokens[i])
	r.path = append(r.path, int32(i))
}

// verdict ends the walk with the token after it.
func (r *route) verdict(next int32, targets []int32) engine.Verdict {
	kind := engine.NextCorrection
	switch {
	case len(r.draft.Tokens) == 0:
		kind = engine.NextSampled
	case r.draft.First(r.row) < 0:
		kind = engine.NextBonus
	}
	return engine.Verdict{Accepted: engine.Accepted(len(r.tokens)), Path: r.path, Next: next, Kind: kind, Targets: targets}
}

// leading is the walk to a row.
func leading(d *engine.Draft, row int) route {
	if d.Parents == nil {
		return route{draft: d, row: row, tokens: d.Tokens[:row]}
	}
	r := route{draft: d}
	var up func(row int)
	up = func(row int) {
		if row > 0 {
			up(d.Parent(row-1) + 1)
			r.take(row - 1)
		}
	}
	up(row)
	return r
}

// own is plain decoding's token at a row.
func own(v *engine.Verification, row int, before []int32) (int32, error) {
	if v.Sampler.Params().Plain() {
		return v.Argmax[row], nil
	}
	return v.Sampler.CoupledSample(v.Logits(row), before, v.Position+1+len(before))
}

// owned ends a walk of a rule that does not ask for plain decoding's tokens, with
// those: the next one, and as targets those of every row of the path.
func owned(v *engine.Verification, r route) (engine.Verdict, error) {
	targets := make([]int32, 0, len(r.tokens)+1)
	row := 0
	for n := range len(r.tokens) + 1 {
		t, err := own(v, row, r.tokens[:n])
		if err != nil {
			return engine.Verdict{}, err
		}
		if targets = append(targets, t); n < len(r.path) {
			row = int(r.path[n]) + 1
		} else {
			row++
		}
	}
	return r.verdict(targets[len(targets)-1], targets), nil
}

// walk accepts drafts while they equal the target's choice, which choose gives
// for a row and the tokens up to it. Rows off the path are not looked at.
func walk(v *engine.Verification, choose func(row int, before []int32) (int32, error)) (engine.Verdict, error) {
	r := begin(v)
	targets := make([]int32, 0, len(v.Draft.Tokens)+1)
	for {
		t, err := choose(r.row, r.tokens)
		if err != nil {
			return engine.Verdict{}, err
		}
		targets = append(targets, t)
		i := v.Draft.Child(r.row, t)
		if i < 0 {
			return r.verdict(t, targets), nil
		}
		r.take(i)
	}
}

// branch shows a rule for chains one path of a tree, as if the drafter had proposed
// nothing else; along turns the rule's verdict back. A chain is its own path.
func branch(v *engine.Verification, path []int32) (*engine.Verification, func(engine.Verdict) engine.Verdict) {
	if v.Draft.Parents == nil {
		return v, func(d engine.Verdict) engine.Verdict { return d }
	}
	b := *v
	b.Draft = engine.Draft{Expect: v.Draft.Expect}
	row := func(i int) int {
		if i == 0 {
			return 0
		}
		return int(path[i-1]) + 1
	}
	b.Argmax = []int32{v.Argmax[0]}
	for j, i := range path {
		b.Draft.Tokens = append(b.Draft.Tokens, v.Draft.Tokens[i])
		if v.Draft.Probs != nil && int(i) < len(v.Draft.Probs) {
			b.Draft.Probs = append(b.Draft.Probs, v.Draft.Probs[i])
		}
		b.Argmax = append(b.Argmax, v.Argmax[row(j+1)])
	}
	if v.Logits != nil {
		b.Logits = func(i int) []float32 { return v.Logits(row(i)) }
	}
	return &b, func(d engine.Verdict) engine.Verdict {
		d.Path = path[:d.Accepted]
		return d
	}
}

// firsts is the path of the first draft of each row. Where drafts were drawn it is
// the one whose tokens have the distributions that they come with: which path is the
// longest may depend on the tokens, and so on their luck.
func firsts(d *engine.Draft) (path []int32) {
	for i := d.First(0); i >= 0; i = d.First(i + 1) {
		path = append(path, int32(i))
	}
	return path
}

// decided returns the verdict that accepts the first n of k drafts of a chain.
func decided(n, k int, next int32, targets []int32) engine.Verdict {
	kind := engine.NextCorrection
	switch {
	case k == 0:
		kind = engine.NextSampled
	case n == k:
		kind = engine.NextBonus
	}
	return engine.Verdict{Accepted: engine.Accepted(n), Next: next, Kind: kind, Targets: targets}
}
