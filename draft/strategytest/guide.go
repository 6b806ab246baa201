package strategytest

import "exacta.dev/exacta/engine"

// guide knows what plain decoding gives and replaces drafts by it.
type guide struct {
	output map[string][]int32 // by request
}

// asked counts a run's asks by request.
type asked map[string]int

func newGuide(plain []outcome) *guide {
	g := &guide{output: map[string][]int32{}}
	for _, o := range plain {
		g.output[o.id] = o.tokens
	}
	return g
}

// replace makes the first tokens of a draft right, 0 to K of them in turn from ask
// to ask, and the one after them wrong. Every other draft is a tree: a wrong
// alternative stands before each second one of the right tokens.
func (g *guide) replace(a *engine.Ask, n asked, vocab int) {
	id := a.Seq.Request().ID
	truth := g.output[id][len(a.Seq.Output()):]
	turn := n[id]
	right := min(turn%(a.K+1), len(truth))
	n[id]++
	d := engine.Draft{}
	last := int32(-1) // the right draft that was put in last
	add := func(token int32) {
		d.Tokens, d.Parents = append(d.Tokens, token), append(d.Parents, last)
	}
	for i := 0; i < right && len(d.Tokens) < a.K; i++ {
		if turn/(a.K+1)%2 == 1 && i%2 == 0 && len(d.Tokens)+1 < a.K {
			add((truth[i] + 2) % int32(vocab))
		}
		add(truth[i])
		last = int32(len(d.Tokens) - 1)
	}
	if right < len(truth) && len(d.Tokens) < a.K {
		add((truth[right] + 1) % int32(vocab))
	}
	a.Draft = d
}
