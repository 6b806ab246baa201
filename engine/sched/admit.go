package sched

import (
	"exacta.dev/exacta/engine/cache"
	"exacta.dev/exacta/kernels"
)

// admit makes the next waiting sequence resident, with all the pages of its
// known tokens. It returns nil if there is none, or no slot or not enough pages
// for it: then nobody overtakes it.
func (p *planner) admit() *sequence {
	if len(p.waiting) == 0 || len(p.slots) == 0 {
		return nil
	}
	s := p.next()
	hit := cache.Hit{Snapshot: -1}
	if p.prefix != nil {
		hit = p.prefix.Lookup(s.space, s.known)
	}
	if !p.fits(s, hit) {
		return nil
	}
	if p.prefix != nil {
		s.path = p.prefix.Take(hit)
	}
	s.slot = p.slots[len(p.slots)-1]
	p.slots = p.slots[:len(p.slots)-1]
	s.fresh = true
	s.pages = append(s.pages, hit.Pages...)
	p.extend(s, len(s.known)+p.cfg.Lookahead)
	s.length, s.cached, s.restore = hit.Length, hit.Length, hit.Snapshot
	s.borders = p.chooseBorders(s, hit)
	p.waiting = remove(p.waiting, s)
	p.running = append(p.running, s)
	return s
}

// next returns the waiting sequence that the policy puts first.
func (p *planner) next() *sequence {
	best := p.waiting[0]
	for _, s := range p.waiting[1:] {
		if p.policy.Before(s.candidate(p.step), best.candidate(p.step)) {
			best = s
		}
	}
	return best
}

// fits reports whether there are pages for a waiting sequence's known tokens,
// with one page to spare for each resident sequence that can still grow:
// without them, a newcomer would be preempted as soon as an older sequence
// needs a page, and its prefill wasted. A sequence that would be alone needs no
// spare.
func (p *planner) fits(s *sequence, hit cache.Hit) bool {
	held := pagesFor(len(s.known) + p.cfg.Lookahead)
	need := held - len(hit.Pages)
	for _, page := range hit.Pages {
		if p.pages.Refs(page) == 0 {
			need++ // counted as idle below, but about to be used
		}
	}
	if len(p.running) > 0 {
		need += min(1, s.maxPages(p.cfg.Lookahead)-held)
	}
	for _, r := range p.running {
		need += min(1, r.maxPages(p.cfg.Lookahead)-len(r.pages))
	}
	return need <= p.pages.Free()+p.pages.Idle()
}

// chooseBorders returns the lengths at which a prefill saves a snapshot: the
// deepest border that a repeated prompt can use, and the one where the prompt
// leaves what the cache has seen before (a system prompt, say). These are the
// two places that Marconi (Pan et al. 2024, arXiv:2411.19379) admits.
func (p *planner) chooseBorders(s *sequence, hit cache.Hit) []int {
	if p.prefix == nil || !p.cfg.Recurrent || p.cfg.Snapshots == 0 {
		return nil
	}
	var borders []int
	deepest := (len(s.known) - 1) / kernels.PageTokens * kernels.PageTokens
	if hit.Matched > hit.Length && hit.Matched < deepest {
		borders = append(borders, hit.Matched)
	}
	if deepest > hit.Length {
		borders = append(borders, deepest)
	}
	return borders
}
