package sched

import "slices"

const (
	// seenOutputs is the number of outputs, the last to end, that expectations
	// go by.
	seenOutputs = 256
	// enoughOutputs is the number from which they count for more than
	// Config.Expect.
	enoughOutputs = 8
)

// outputs are the lengths of the last outputs that came to an end of their own,
// in tokens.
type outputs struct {
	ring   []int // in order of their end, from next on when full
	next   int
	sorted []int
}

// add takes an output's length in.
func (o *outputs) add(n int) {
	if len(o.ring) < seenOutputs {
		o.ring = append(o.ring, n)
	} else {
		old, _ := slices.BinarySearch(o.sorted, o.ring[o.next])
		o.sorted = slices.Delete(o.sorted, old, old+1)
		o.ring[o.next] = n
		o.next = (o.next + 1) % seenOutputs
	}
	at, _ := slices.BinarySearch(o.sorted, n)
	o.sorted = slices.Insert(o.sorted, at, n)
}

// longer returns the lengths seen that are more than n, in ascending order; none
// until enough have been seen.
func (o *outputs) longer(n int) []int {
	if len(o.sorted) < enoughOutputs {
		return nil
	}
	at, _ := slices.BinarySearch(o.sorted, n+1)
	return o.sorted[at:]
}

// grower is a resident sequence as a forecast sees it.
type grower struct {
	length int // positions of its known tokens and the lookahead
	pages  int // held now
	own    int // of those, pages that no other sequence has

	// The output has n tokens, and comes to have most at the most. It ends as
	// the longer ones did that were seen; with none, when left tokens have been
	// added.
	n, left, most int
	longer        []int
}

// growth returns the pages that the sequence takes to add t tokens, of which the
// last is not computed.
func (g grower) growth(t int) int { return max(0, pagesFor(g.length+t-1)-g.pages) }

// certain is the probability 1: probabilities are whole numbers, since products
// and sums of floats are not the same on every processor.
const certain = 1 << 12

// alive returns the probability that the sequence adds t tokens or more.
func (g grower) alive(t int) int {
	switch {
	case t > g.most || g.longer == nil && t > g.left:
		return 0
	case g.longer == nil:
		return certain
	}
	ended, _ := slices.BinarySearch(g.longer, g.n+t)
	return certain * (len(g.longer) - ended) / len(g.longer)
}

// forecast returns the pages that are in use at the fullest time to come, if
// every resident sequence goes on at one pace and gives its own pages back when
// it ends; used are in use now. Where it is not known when a sequence ends, that
// is a sum of chances: its expectation and two standard deviations. The idea is
// the admission of the Past-Future scheduler (Gong et al. 2025,
// arXiv:2507.10150), which draws lengths where this takes moments.
func forecast(resident []grower, used int) int {
	peak := used
	for _, t := range times(resident) {
		mean, variance := used*certain, 0
		for _, g := range resident {
			p, grown := g.alive(t), g.growth(t)
			mean += p*grown - (certain-p)*g.own
			variance += p * (certain - p) * (grown + g.own) * (grown + g.own)
		}
		peak = max(peak, (mean+2*root(variance)+certain-1)/certain)
	}
	return peak
}

// root returns the square root of n, rounded up.
func root(n int) int {
	lo, hi := 0, 1<<31
	for lo < hi {
		if mid := (lo + hi) / 2; mid*mid < n {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// times returns the times to look at, in tokens from now. Memory is fullest just
// before an end: those are the ends that are known, and for other sequences the
// likely one and the last.
func times(resident []grower) []int {
	var at []int
	for _, g := range resident {
		if g.longer == nil {
			at = append(at, min(g.left, g.most))
			continue
		}
		for _, end := range []int{g.longer[len(g.longer)/2], g.longer[len(g.longer)-1]} {
			at = append(at, min(end-g.n, g.most))
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// grower describes a sequence with this many pages, of which own are no other's,
// for a forecast.
func (c *Core) grower(s *sequence, pages, own int) grower {
	g := grower{
		length: len(s.known) + c.cfg.Lookahead, pages: pages, own: own,
		n: len(s.known) - s.prompt, most: s.maxLen - len(s.known),
	}
	g.left = g.most
	if s.fixed {
		return g
	}
	if g.longer = c.outputs.longer(g.n); len(g.longer) == 0 {
		g.longer, g.left = nil, max(c.cfg.Expect-g.n, g.n)
	}
	return g
}

// ownPages returns the number of a sequence's pages that no other has.
func (c *Core) ownPages(s *sequence) (own int) {
	for _, p := range s.pages {
		if c.pages.Refs(p) == 1 {
			own++
		}
	}
	return own
}
