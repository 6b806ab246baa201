package audit

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// deferredDraft is the shape of a step's drafting, whose cost is known once
// requests were run again: shapes are few, however many steps there are.
type deferredDraft struct {
	strategy string
	shape    string
	recs     []draftSpan
	work     kernels.Counters
	steps    int64
	first    *engine.Record
	proposed int64
	fastest  *engine.Record
	verify   int64 // shortest time of verification
	mixed    bool  // sequences draft to different lengths, or beside idle rows
}

// draftSpan is a sequence's part in it.
type draftSpan struct {
	phase engine.Phase
	k     draftSize
	rows  int32
}

// drafted notes a step for the check of its drafting.
func (a *workAudit) drafted(recs []*engine.Record) {
	req := a.c.Requests[recs[0].Request]
	if req == nil {
		return
	}
	d := deferredDraft{strategy: req.Strategy, work: additive(recs[0].DraftWork), first: recs[0], fastest: recs[0], verify: recs[0].VerifyNs, steps: 1}
	if req.K == 0 {
		d.strategy = ""
	}
	counts := map[draftSpan]int{}
	prefill := int32(0)
	for _, r := range recs {
		q := a.c.Requests[r.Request]
		if q == nil || q.Strategy != req.Strategy || (q.K == 0) != (req.K == 0) {
			return // mixed strategies share one counter
		}
		d.proposed += int64(len(r.ProposedIDs))
		if r.Phase == engine.Prefill {
			prefill += r.Rows
			continue
		}
		s := draftSpan{r.Phase, sizeOf(r), 0}
		counts[s]++
		d.recs = append(d.recs, s)
	}
	d.mixed = recs[0].IdleRows > 0
	for _, s := range d.recs {
		d.mixed = d.mixed || s.k != d.recs[0].k
	}
	if prefill > 0 {
		d.recs = append(d.recs, draftSpan{engine.Prefill, draftSize{}, prefill})
	}
	d.shape = fmt.Sprint(d.strategy, counts, prefill, d.work, d.mixed)
	if i, ok := a.shapes[d.shape]; ok {
		a.deferred[i].steps++
		a.deferred[i].verify = min(a.deferred[i].verify, recs[0].VerifyNs)
		if recs[0].DraftNs < a.deferred[i].fastest.DraftNs {
			a.deferred[i].fastest = recs[0]
		}
		return
	}
	if len(a.deferred) < maxShapes {
		a.shapes[d.shape] = len(a.deferred)
		a.deferred = append(a.deferred, d)
		return
	}
	a.b.blindTo("steps beyond the first few thousand shapes of batches are not held against the cost of drafting")
}

// maxShapes bounds the shapes that are kept.
const maxShapes = 4096

// drafting compares the drafting of every shape with the cost that running
// requests alone showed: costs of sequences add up.
func (a *workAudit) drafting() {
	k, fast := a.b.check(checkDraftWork), a.b.check(checkDraftTime)
	for i := range a.deferred {
		d := &a.deferred[i]
		cost := a.c.costs[d.strategy]
		if d.strategy == "" {
			cost = &draftCost{byK: map[draftSize]kernels.Counters{{}: {}}, row: &kernels.Counters{}}
		}
		if cost == nil {
			k.skip("no request of the strategy could be run again")
			continue
		}
		var want kernels.Counters
		known := true
		for _, s := range d.recs {
			c, ok := cost.of(&engine.Record{Phase: s.phase, KExecuted: s.k.k, TreeNodes: s.k.nodes, Rows: s.rows})
			want, known = want.Add(c), known && ok
		}
		if !known {
			k.skip("some draft lengths of the run came up in no request that was run again")
			continue
		}
		// Only of a step that did that work is it known how long that takes.
		if least := cost.least(d.recs, d.verify); least > 0 && !a.c.Elsewhere && atLeast(d.work, want) {
			fast.Checked += d.steps - 1
			if !fast.holds(roofMargin*d.fastest.DraftNs >= least) {
				fast.blame(d.fastest, "drafting took %d ns; alone, with nothing else to do, strategy %s takes at least %d ns for such a draft here, a %dth of it is the limit",
					d.fastest.DraftNs, d.strategy, least, roofMargin)
			}
		}
		k.Checked += d.steps
		if want == d.work || d.mixed && atLeast(d.work, want) {
			continue
		}
		k.Failed += d.steps
		k.blame(d.first, "%d drafts with %d multiply-adds, %d rows and %d logits rows of drafting; strategy %s needs %d, %d and %d for them (%d steps alike)",
			d.proposed, d.work.MACs, d.work.MatMulRows, d.work.LogitRows, d.strategy, want.MACs, want.MatMulRows, want.LogitRows, d.steps)
	}
}

// atLeast reports whether no counter is below another. A drafter may go on with
// all sequences of a step as far as the longest draft goes.
func atLeast(c, least kernels.Counters) bool {
	return c.MatMulRows >= least.MatMulRows && c.MACs >= least.MACs && c.LogitRows >= least.LogitRows
}

// sample chooses few requests of each strategy of a large run: enough to learn
// what drafting costs.
func (c *Case) sample() choice {
	ch := c.choose()
	if c.Replay == ReplayBoth {
		return ch
	}
	for g, share := range ch.share {
		ch.share[g] = share / 4
		if share == 1 {
			ch.share[g] = 1
		}
	}
	return ch
}
