package rulestest

import (
	"math/rand/v2"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// scene is where a draft is asked for.
type scene struct {
	target, drafter *toy
	sampler         *sample.Sampler
	prompt, history []int32
	plain           []int32 // what plain decoding says, where that is known
	rand            *rand.Rand
}

// drafting makes drafts of one kind.
type drafting struct {
	name string
	make func(s *scene) engine.Draft
	// all says that an exact rule accepts each draft whole, none that it
	// accepts nothing; counted, that the texts behind them are counted where
	// a rule promises a distribution.
	all, none, counted bool
}

// draftings lists the kinds of drafts.
func draftings() []drafting {
	return []drafting{
		{name: "no drafts", make: func(*scene) engine.Draft { return engine.Draft{} }, counted: true},
		{name: "right drafts", make: func(s *scene) engine.Draft { return s.guess(4, 4) }, all: true},
		{name: "wrong drafts", make: func(s *scene) engine.Draft { return s.guess(3, 0) }, none: true},
		{name: "half right drafts", make: func(s *scene) engine.Draft { return s.guess(6, s.rand.IntN(6)) }},
		{name: "drafts behind the end", make: (*scene).behind},
		{name: "trees", make: (*scene).tree, counted: true},
		{name: "drawn drafts", make: func(s *scene) engine.Draft { return s.drawn([]int32{-1, 0, 1}) }, counted: true},
		{name: "drawn trees", make: func(s *scene) engine.Draft { return s.drawn([]int32{-1, -1, 0, 0, 2}) }, counted: true},
	}
}

// after is what plain decoding says at a place of the output, or any token.
func (s *scene) after(i int) int32 {
	if i += len(s.history) - len(s.prompt); i < len(s.plain) {
		return s.plain[i]
	}
	return int32(s.rand.IntN(s.target.vocab))
}

// guess is a chain of n tokens of which the first right ones are plain decoding's, as
// far as the plain text goes, and the one after them is not.
func (s *scene) guess(n, right int) engine.Draft {
	d := engine.Draft{}
	for i := range min(n, len(s.plain)-(len(s.history)-len(s.prompt))) {
		id := s.after(i)
		if i == right {
			id = (id + 1 + int32(s.rand.IntN(s.target.vocab-1))) % int32(s.target.vocab)
		}
		d.Tokens = append(d.Tokens, id)
	}
	return d
}

// behind goes on past the token that ends the text.
func (s *scene) behind() engine.Draft {
	end := int32(s.target.vocab - 1)
	return engine.Draft{Tokens: []int32{s.after(0), end, s.after(2), end}}
}

// tree is a tree of any shape, whose tokens are right as often as not.
func (s *scene) tree() engine.Draft {
	d := engine.Draft{Parents: []int32{}}
	for range s.rand.IntN(10) {
		parent := int32(s.rand.IntN(len(d.Tokens)+1)) - 1
		id := int32(s.rand.IntN(s.target.vocab))
		if s.rand.IntN(2) == 0 {
			id = s.after(len(before(&d, int(parent)+1)))
		}
		if d.Child(int(parent)+1, id) < 0 {
			d.Tokens, d.Parents = append(d.Tokens, id), append(d.Parents, parent)
		}
	}
	return settled(d)
}

// settled says a tree of one branch as a chain, as engines do.
func settled(d engine.Draft) engine.Draft {
	for i, p := range d.Parents {
		if int(p) != i-1 {
			return d
		}
	}
	d.Parents = nil
	return d
}

// drawn is a tree of a shape whose tokens are drawn from the drafter's distribution,
// siblings without replacement; it ends where nothing is left to draw.
func (s *scene) drawn(shape []int32) engine.Draft {
	d := engine.Draft{Parents: []int32{}}
	if s.sampler.Params().Greedy() {
		return d
	}
	for i, parent := range shape {
		if int(parent) >= i {
			break
		}
		path := before(&d, int(parent)+1)
		q, err := s.sampler.ProcessTo(make([]float32, s.drafter.vocab), s.drafter.logits(join(s.history, path)), path)
		if err != nil {
			break
		}
		for j := d.First(int(parent) + 1); j >= 0; j = d.Sibling(j) {
			q[d.Tokens[j]] = 0
		}
		id := sample.Sample(q, s.sampler.Stream(sample.Draft, len(s.history)-1, i).Uniform(0))
		if id < 0 {
			break
		}
		d.Tokens, d.Parents, d.Probs = append(d.Tokens, id), append(d.Parents, parent), append(d.Probs, q)
	}
	return settled(d)
}
