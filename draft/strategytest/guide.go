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
// to ask, and the one after them wrong.
func (g *guide) replace(a *engine.Ask, n asked, vocab int) {
	id := a.Seq.Request().ID
	truth := g.output[id][len(a.Seq.Output()):]
	right := min(n[id]%(a.K+1), len(truth))
	n[id]++
	var tokens []int32
	tokens = append(tokens, truth[:right]...)
	if right < min(a.K, len(truth)) {
		tokens = append(tokens, (truth[right]+1)%int32(vocab))
	}
	a.Draft = engine.Draft{Tokens: tokens}
}
