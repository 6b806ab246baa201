package audit

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// draftCost is what drafting costs, learned from requests run alone: by number of
// drafts for a decode step, by row for a prompt. Costs of sequences in one step
// add up.
type draftCost struct {
	byK    map[draftSize]kernels.Counters // of a decode step
	row    *kernels.Counters              // of a prefill row
	uneven bool                           // the costs are not a function of these
	best   map[draftSize]*best
}

// best is the shortest time of drafting, and of verification, of so many steps.
type best struct {
	ns, verify int64
	steps      int64
}

// timed keeps the time of drafting of a request run alone.
func (d *draftCost) timed(r *engine.Record) {
	if r.Phase != engine.Decode || r.DraftNs <= 0 {
		return
	}
	if d.best == nil {
		d.best = map[draftSize]*best{}
	}
	b := d.best[sizeOf(r)]
	if b == nil {
		b = &best{ns: r.DraftNs, verify: r.VerifyNs}
		d.best[sizeOf(r)] = b
	}
	b.steps++
	b.ns, b.verify = min(b.ns, r.DraftNs), min(b.verify, r.VerifyNs)
}

// Drafting is held against the best of so many steps, if that is longer than what
// clocks and caches make of it.
const (
	draftSteps = 8
	draftNs    = 20_000
)

// least is the shortest time that drafting for one sequence of a step took alone; 0
// where that says nothing. verify is the shortest time of the step's verification:
// where that takes longer alone, which has less to verify, the machine is busier now
// than it was, by that factor.
func (d *draftCost) least(spans []draftSpan, verify int64) (ns int64) {
	for _, s := range spans {
		if b := d.best[s.k]; s.phase == engine.Decode && b != nil && b.steps >= draftSteps && b.ns >= draftNs {
			busier := max(1, float64(b.verify)/float64(max(1, verify)))
			ns = max(ns, int64(float64(b.ns)/busier))
		}
	}
	return ns
}

// cost returns the table of a request's strategy.
func (c *Case) cost(r *Request) *draftCost {
	key := r.Strategy
	if r.K == 0 {
		key = ""
	}
	if c.costs == nil {
		c.costs = map[string]*draftCost{}
	}
	if c.costs[key] == nil {
		c.costs[key] = &draftCost{byK: map[draftSize]kernels.Counters{}}
	}
	return c.costs[key]
}

// additive keeps the counters that add up over sequences and do not depend on
// the position.
func additive(c kernels.Counters) kernels.Counters {
	return kernels.Counters{MatMulRows: c.MatMulRows, MACs: c.MACs, LogitRows: c.LogitRows}
}

// learn takes a record of a request run alone.
func (d *draftCost) learn(r *engine.Record) {
	d.timed(r)
	work := additive(r.DraftWork)
	if r.Phase == engine.Prefill {
		n := uint64(max(1, r.Rows))
		row := kernels.Counters{MatMulRows: work.MatMulRows / n, MACs: work.MACs / n, LogitRows: work.LogitRows / n}
		d.uneven = d.uneven || times(row, n) != work || d.row != nil && *d.row != row
		d.row = &row
		return
	}
	known, ok := d.byK[sizeOf(r)]
	d.uneven = d.uneven || ok && known != work
	d.byK[sizeOf(r)] = work
}

// pauses knows the requests whose last step was a decode step that planned no
// drafts. The engine tells a drafter with caches of such steps later, of several at
// once, so what they and the step after them cost depends on how many there were.
type pauses map[string]bool

// loose takes the next record of a request, and reports whether its drafting is not
// a function of its own drafts.
func (p pauses) loose(r *engine.Record) bool {
	now, before := r.Phase == engine.Decode && r.KPlanned == 0, p[r.Request]
	if now {
		p[r.Request] = true
	} else {
		delete(p, r.Request)
	}
	return now || before
}

// draftSize is what the cost of a draft is a function of: the drafts on the
// longest path, and all of them.
type draftSize struct{ k, nodes int32 }

func sizeOf(r *engine.Record) draftSize { return draftSize{r.KExecuted, r.TreeNodes} }

// of returns what a record's sequence costs the drafter, and whether that is
// known.
func (d *draftCost) of(r *engine.Record) (kernels.Counters, bool) {
	if d.uneven {
		return kernels.Counters{}, false
	}
	if r.Phase == engine.Prefill {
		if d.row == nil {
			return kernels.Counters{}, false
		}
		return times(*d.row, uint64(max(0, r.Rows))), true
	}
	work, ok := d.byK[sizeOf(r)]
	return work, ok
}

func times(c kernels.Counters, n uint64) kernels.Counters {
	return kernels.Counters{MatMulRows: c.MatMulRows * n, MACs: c.MACs * n, LogitRows: c.LogitRows * n}
}
