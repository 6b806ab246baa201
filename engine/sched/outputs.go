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

// total returns the length expected of an output that has n tokens so far: the
// ninth decile of the longer ones seen. When there were none, an output is
// taken to be half way.
func (o *outputs) total(n, expect int) int {
	if len(o.sorted) < enoughOutputs {
		return max(expect, 2*n)
	}
	at, _ := slices.BinarySearch(o.sorted, n+1)
	longer := o.sorted[at:]
	if len(longer) == 0 {
		return 2 * n
	}
	return longer[len(longer)*9/10]
}

// remaining returns the number of tokens that a sequence is expected to add.
func (c *Core) remaining(s *sequence) int {
	most := s.maxLen - len(s.known)
	if s.fixed {
		return most
	}
	n := len(s.known) - s.prompt
	return min(most, c.outputs.total(n, c.cfg.Expect)-n)
}

// grower is a resident sequence as a forecast sees it.
type grower struct {
	length int // positions of its known tokens and the lookahead
	pages  int // held now
	own    int // of those, pages that no other sequence has
	left   int // tokens it is expected to add
}

// growth returns the pages that the sequence takes to add n tokens, of which the
// last is not computed.
func (g grower) growth(n int) int { return max(0, pagesFor(g.length+n-1)-g.pages) }

// forecast returns the most pages in use at any time to come if every resident
// sequence adds the tokens expected of it, all at one pace, and gives its own
// pages back when it ends; used are in use now. Memory in use is most just
// before an end, so only those times are looked at. This is the admission of
// the Past-Future scheduler (Gong et al. 2025, arXiv:2507.10150), with a
// quantile where that draws samples.
func forecast(resident []grower, used int) int {
	peak := used
	for _, at := range resident {
		sum := used
		for _, g := range resident {
			if g.left >= at.left {
				sum += g.growth(at.left)
			} else {
				sum -= g.own
			}
		}
		peak = max(peak, sum)
	}
	return peak
}

// grower describes a resident sequence for a forecast.
func (c *Core) grower(s *sequence) grower {
	own := 0
	for _, p := range s.pages {
		if c.pages.Refs(p) == 1 {
			own++
		}
	}
	return grower{
		length: len(s.known) + c.cfg.Lookahead, pages: len(s.pages), own: own, left: c.remaining(s),
	}
}
