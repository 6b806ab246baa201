package sched

import (
	"cmp"
	"slices"

	"exacta.dev/exacta/kernels"
)

// planner is one call of Plan.
type planner struct {
	*Core
	plan   Plan
	queue  []candidate // waiting sequences still to be looked at, once filled
	filled bool
	passed int // sequences that were passed over
}

// Plan decides the next step. It must be committed before the next one is
// planned: another call before that is a broken invariant of the caller, and
// panics.
//
// All decoding sequences take part, each with its pending token and, as far as
// the budget goes, drafts; then come the chunks of sequences in prefill, then
// sequences that are admitted by this plan.
func (c *Core) Plan() Plan {
	if c.inFlight {
		panic("sched: Plan before Commit of the step in flight")
	}
	p := planner{Core: c, plan: Plan{Step: c.step}}
	decode := p.grow()
	rows := c.cfg.MaxBatchTokens - len(decode)

	// Prefill may have the rows that drafts do not want, and its share of them
	// even if they do.
	demand := 0
	for _, s := range decode {
		demand += s.wants()
	}
	room := max(rows-demand, (rows*c.cfg.PrefillShare+99)/100)
	prefill, claims := p.prefillers(room)
	for claims < room && len(p.plan.Preempted) == 0 && len(p.running) < c.cfg.MaxSpans {
		s := p.admit()
		if s == nil {
			break
		}
		prefill = append(prefill, s)
		claims += s.chunk(c.cfg.Chunk)
	}
	room = min(room, claims)

	for i, k := range p.drafts(decode, rows-room) {
		p.decode(decode[i], k)
	}
	for _, s := range prefill {
		n := min(s.chunk(c.cfg.Chunk), room)
		p.prefill(s, n)
		room -= n
	}
	return p.finish()
}

// prefillers returns the running sequences in prefill, in order of admission,
// until their chunks claim room rows, and what they claim.
func (p *planner) prefillers(room int) (list []*sequence, claims int) {
	for _, s := range p.running {
		if !s.decoding && claims < room {
			list = append(list, s)
			claims += s.chunk(p.cfg.Chunk)
		}
	}
	return list, claims
}

// grow returns the decoding sequences, in order of admission, and sees that each
// has pages for its pending token. When none are left, sequences are preempted
// until there are, or it was the sequence itself: those of the lowest priority
// first, and of these the one that was admitted last. So the first one of the
// highest priority is never preempted: alone, it fits.
func (p *planner) grow() []*sequence {
	safest := slices.DeleteFunc(slices.Clone(p.running), func(s *sequence) bool { return s.held })
	slices.SortStableFunc(safest, func(a, b *sequence) int { return cmp.Compare(b.priority, a.priority) })
	for _, s := range safest {
		for s.decoding && !p.extend(s, s.length+1+p.cfg.Lookahead) {
			last := len(safest) - 1
			victim := safest[last]
			safest = safest[:last]
			p.preempt(victim)
			p.plan.Preempted = append(p.plan.Preempted, victim.id)
		}
	}
	var decode []*sequence
	for _, s := range p.running {
		if s.decoding && !s.held {
			decode = append(decode, s)
		}
	}
	return decode
}

// drafts spreads at most rows drafts over the decoding sequences, one at a
// time, since the first draft of one is worth more than the last of another;
// and no more than there are pages for.
func (p *planner) drafts(decode []*sequence, rows int) []int {
	k := make([]int, len(decode))
	for more := true; more && rows > 0; {
		more = false
		for i, s := range decode {
			if rows > 0 && k[i] < s.wants() {
				k[i]++
				rows--
				more = true
			}
		}
	}
	for i, s := range decode {
		if !p.extend(s, s.length+1+k[i]+p.cfg.Lookahead) {
			k[i] = len(s.pages)*kernels.PageTokens - p.cfg.Lookahead - s.length - 1
		}
	}
	return k
}

func (p *planner) decode(s *sequence, k int) {
	p.writePages(s)
	p.add(s, Item{Phase: Decode, Rows: 1, K: k, Last: true})
	p.plan.DecodeRows += 1 + k
}

func (p *planner) prefill(s *sequence, rows int) {
	if s.fresh {
		s.fresh = false
		p.plan.Before = append(p.plan.Before, Op{Kind: Reset, ID: s.id, Slot: s.slot})
	}
	p.writePages(s)
	if s.cached > 0 {
		p.plan.Before = append(p.plan.Before, Op{
			Kind: Restore, ID: s.id, Slot: s.slot, Snapshot: s.restore, Length: s.cached,
		})
	}
	end := s.length + rows
	if len(s.borders) > 0 && end == s.borders[0] {
		s.borders = s.borders[1:]
		p.save(s, end)
	}
	p.add(s, Item{Phase: Prefill, Rows: rows, Last: end == len(s.known), Cached: s.cached})
	s.cached = 0
	p.plan.PrefillRows += rows
}

// save plans a snapshot after the step, unless all are being saved already.
func (p *planner) save(s *sequence, end int) {
	id, ok := p.prefix.ReserveSnapshot()
	if !ok {
		return
	}
	s.saving = id
	p.plan.After = append(p.plan.After, Op{Kind: Save, ID: s.id, Slot: s.slot, Snapshot: id, Length: end})
}

// writePages plans the entries of the page table that the slot does not have.
func (p *planner) writePages(s *sequence) {
	if s.written == len(s.pages) {
		return
	}
	p.plan.Before = append(p.plan.Before, s.setPages())
}

func (p *planner) add(s *sequence, it Item) {
	it.ID, it.Slot, it.Start = s.id, s.slot, s.length
	s.planned = true
	p.plan.Items = append(p.plan.Items, it)
	p.planned = append(p.planned, s)
}

func (p *planner) finish() Plan {
	p.plan.Waiting, p.plan.Running = len(p.waiting), len(p.running)
	p.plan.FreePages, p.plan.IdlePages = p.pages.Free(), p.pages.Idle()
	p.items = slices.Clone(p.plan.Items)
	p.inFlight = true
	p.step++
	p.assert()
	return p.plan
}
