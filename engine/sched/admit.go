package sched

import (
	"slices"

	"exacta.dev/exacta/engine/cache"
)

// admit makes a waiting sequence resident, with all the pages of its known
// tokens: the first one in the policy's order, but sequences whose prefix is
// pending are passed over, as many as there are slots. It returns nil if there
// is none, or not enough pages for it: nobody overtakes one that lacks memory.
// There must be a free slot.
func (p *planner) admit() *sequence {
	p.sortQueue()
	for ; len(p.queue) > 0; p.queue = p.queue[1:] {
		s := p.queue[0]
		hit := cache.Hit{Snapshot: -1}
		if p.prefix != nil {
			hit = p.prefix.Lookup(s.space, s.known)
		}
		if p.pending(s, hit) {
			p.block(Block{ID: s.id, Why: PrefixPending})
			if p.passed++; p.passed == p.cfg.Slots {
				p.queue = nil
				return nil
			}
			continue
		}
		need, available := p.need(s, hit), p.pages.Free()+p.pages.Idle()
		if need > available {
			p.block(Block{ID: s.id, Why: NoPages, Need: need, Available: available})
			p.queue = nil
			return nil
		}
		p.queue = p.queue[1:]
		p.enter(s, hit)
		return s
	}
	return nil
}

// sortQueue puts the waiting sequences into the policy's order, once per plan.
func (p *planner) sortQueue() {
	if p.sorted {
		return
	}
	p.sorted = true
	p.queue = slices.Clone(p.waiting)
	slices.SortStableFunc(p.queue, func(a, b *sequence) int {
		ca, cb := a.candidate(p.step), b.candidate(p.step)
		switch {
		case p.policy.Before(ca, cb):
			return -1
		case p.policy.Before(cb, ca):
			return 1
		}
		return 0
	})
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
