package sched

import (
	"exacta.dev/exacta/engine/cache"
)

// candidate is a waiting sequence that has not been looked at in this plan.
type candidate struct {
	*sequence
	Candidate
}

// before reports whether a is admitted before b.
func (p *planner) before(a, b candidate) bool {
	switch {
	case a.priority != b.priority:
		return a.priority > b.priority
	case p.policy.Before(a.Candidate, b.Candidate):
		return true
	case p.policy.Before(b.Candidate, a.Candidate):
		return false
	}
	return a.arrival < b.arrival
}

// next takes the candidate that is to be admitted first out of the queue.
func (p *planner) next() (candidate, bool) {
	if !p.filled {
		p.filled = true
		for _, s := range p.waiting {
			p.queue = append(p.queue, p.candidate(s))
		}
	}
	if len(p.queue) == 0 {
		return candidate{}, false
	}
	first, last := 0, len(p.queue)-1
	for i := range p.queue {
		if p.before(p.queue[i], p.queue[first]) {
			first = i
		}
	}
	c := p.queue[first]
	p.queue[first] = p.queue[last]
	p.queue = p.queue[:last]
	return c, true
}

func (p *planner) candidate(s *sequence) candidate {
	c := candidate{sequence: s, Candidate: s.candidate(p.step)}
	if p.policy.LooksUp() {
		c.Cached = p.lookup(s).Length
	}
	return c
}

func (p *planner) lookup(s *sequence) cache.Hit {
	if p.prefix == nil {
		return cache.Hit{Snapshot: -1}
	}
	return p.prefix.Lookup(s.space, s.known)
}

// admit makes a waiting sequence resident, with all the pages of its known
// tokens: the first one in order of priority and policy, but sequences whose
// prefix is pending are passed over, as many as there are slots. It returns nil
// if there is none, or not enough pages for it: nobody overtakes one that lacks
// memory. There must be a free slot.
func (p *planner) admit() *sequence {
	for c, ok := p.next(); ok; c, ok = p.next() {
		hit := p.lookup(c.sequence)
		if p.pending(c.sequence, hit) {
			p.block(Block{ID: c.id, Why: PrefixPending})
			if p.passed++; p.passed == p.cfg.Slots {
				p.queue = nil
				return nil
			}
			continue
		}
		if why := p.fits(c.sequence, hit); why.Why != Open {
			p.block(why)
			p.queue = nil
			return nil
		}
		p.enter(c.sequence, hit)
		return c.sequence
	}
	return nil
}

// fits reports whether there are pages for a waiting sequence, now and for the outputs
// that are expected. When nothing runs there are: Submit saw that the sequence
// fits at its longest.
func (p *planner) fits(s *sequence, hit cache.Hit) Block {
	need, available := p.need(s, hit), p.pages.Free()+p.pages.Idle()
	if need > available {
		return Block{ID: s.id, Why: NoPages, Need: need, Available: available}
	}
	if len(p.running) == 0 || p.cfg.Expect < 0 {
		return Block{}
	}
	held := pagesFor(len(s.known) + p.cfg.Lookahead)
	own := held
	for _, page := range hit.Pages {
		own -= min(1, p.pages.Refs(page))
	}
	resident := []grower{p.grower(s, held, own)}
	for _, r := range p.running {
		resident = append(resident, p.grower(r, len(r.pages), p.ownPages(r)))
	}
	if peak, all := forecast(resident, p.pages.Used()+own), p.pages.Total(); peak > all {
		return Block{ID: s.id, Why: OutputPages, Need: peak, Available: all}
	}
	return Block{}
}

// block records why the first sequence that could not be admitted waits.
func (p *planner) block(b Block) {
	if p.plan.Blocked.Why == Open {
		p.plan.Blocked = b
	}
}

// enter gives a waiting sequence its slot and pages.
func (p *planner) enter(s *sequence, hit cache.Hit) {
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
}

// need returns the number of unused pages that admitting a sequence takes:
// those of its known tokens, and one to spare for each resident sequence that
// can still grow, and for itself. Without the spare, a newcomer would be
// preempted as soon as an older sequence needs a page, and its prefill wasted.
// When nothing runs, there are always enough: Submit saw that the sequence fits
// at its longest.
func (p *planner) need(s *sequence, hit cache.Hit) int {
	held := pagesFor(len(s.known) + p.cfg.Lookahead)
	need := held - len(hit.Pages)
	for _, page := range hit.Pages {
		if p.pages.Refs(page) == 0 {
			need++ // idle until it is taken
		}
	}
	need += s.growth(held, p.cfg.Lookahead)
	for _, r := range p.running {
		need += r.growth(len(r.pages), p.cfg.Lookahead)
	}
	return need
}

// chooseBorders returns the lengths at which a prefill saves a snapshot: the
// deepest border that a repeated prompt can use, and the one where the prompt
// leaves what the cache has seen before (a system prompt, say). Saving where
// prompts part is the idea of Marconi (Pan et al. 2024, arXiv:2411.19379).
func (p *planner) chooseBorders(s *sequence, hit cache.Hit) []int {
	if !p.snapshots() {
		return nil
	}
	var borders []int
	deepest := deepest(s)
	if hit.Matched > hit.Length && hit.Matched < deepest {
		borders = append(borders, hit.Matched)
	}
	if deepest > hit.Length {
		borders = append(borders, deepest)
	}
	return borders
}
