package audit

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
)

// retrace is what came of running a request again, alone, along what it
// received.
type retrace struct {
	steps                int64 // compared
	drafts, rule, hashes int64 // steps in which they differ
	draftsWhy, ruleWhy   string
	hashesWhy            string
	draftsAt, ruleAt     *engine.Record
	hashesAt             *engine.Record
	narrow               int64 // steps that verified fewer drafts than planned
	narrowAt             *engine.Record
	fixed                bool // run alone, the strategy fills every draft
}

// againTokens is how many tokens of a strategy are run again unasked.
const againTokens = 8_000

// sampler chooses the requests of a case that are run again: all of small runs,
// else a share of each strategy's requests, by a hash of their ids.
type choice struct {
	share map[string]float64
}

func groupOf(r *Request) string {
	return fmt.Sprintf("%s/%d/%s/%s", r.Strategy, r.K, r.Rule, r.Simulation)
}

func (c *Case) choose() choice {
	total := map[string]int{}
	for _, r := range c.Requests {
		total[groupOf(r)] += max(1, len(r.Received))
	}
	ch := choice{share: map[string]float64{}}
	for g, n := range total {
		ch.share[g] = 1
		if n > againTokens && c.Replay != ReplayBoth {
			ch.share[g] = againTokens / float64(n)
		}
	}
	return ch
}

// takes reports whether a request is run again.
func (ch choice) takes(r *Request) bool {
	h := fnv.New64a()
	h.Write([]byte(r.ID))
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd // murmur3's finaliser: close ids are far apart
	x ^= x >> 33
	return float64(x) <= ch.share[groupOf(r)]*math.MaxUint64
}

// sharedDrafts reports whether a strategy's drafts depend on other requests, so
// that running one alone does not repeat them.
func sharedDrafts(drafter string) bool {
	return slices.ContainsFunc(draft.List(), func(i draft.Info) bool { return i.Name == drafter && i.Shared })
}

// again runs a request again, once for all audits of the case. The walk must
// have kept the records.
func (c *Case) again(ctx context.Context, co *course) (*retrace, error) {
	if t := c.retraces[co.id]; t != nil {
		return t, nil
	}
	byPosition := map[int32]*engine.Record{}
	for i, r := range co.recs {
		byPosition[co.steps[i].position] = r
	}
	req := *co.req
	req.Received, req.steps = slices.Clone(co.tokens), slices.Clone(co.steps)
	slices.SortStableFunc(req.steps, func(a, b step) int { return int(a.position - b.position) })
	t := &retrace{fixed: true}
	cost, paused := c.cost(co.req), pauses{}
	err := c.Lab.Again(ctx, []*Request{&req}, engine.RecorderFunc(func(r *engine.Record) error {
		if !paused.loose(r) {
			cost.learn(r)
		}
		if r.NextKind == engine.NextNone {
			return nil
		}
		position := r.Position
		if r.Phase == engine.Prefill {
			position += r.Rows - 1
		}
		if run := byPosition[position]; run != nil {
			t.compare(run, r)
		}
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("request %s: run again: %w", co.id, err)
	}
	if c.retraces == nil {
		c.retraces = map[string]*retrace{}
	}
	c.retraces[co.id] = t
	return t, nil
}

// compare takes a step of the run and the same step run again.
func (t *retrace) compare(run, again *engine.Record) {
	t.steps++
	if run.Phase == engine.Decode {
		t.fixed = t.fixed && again.TreeNodes == again.KPlanned
		if run.TreeNodes < run.KPlanned {
			if t.narrow++; t.narrowAt == nil {
				t.narrowAt = run
			}
		}
	}
	if !slices.Equal(run.ProposedIDs, again.ProposedIDs) {
		if t.drafts++; t.draftsAt == nil {
			t.draftsAt = run
			t.draftsWhy = fmt.Sprintf("at position %d the drafts were %v; the strategy alone, on the same tokens, proposes %v", run.Position, run.ProposedIDs, again.ProposedIDs)
		}
		return // other drafts, other rows and another decision
	}
	if run.RealAccepted != again.RealAccepted || run.RealNextID != again.RealNextID {
		if t.rule++; t.ruleAt == nil {
			t.ruleAt = run
			t.ruleWhy = fmt.Sprintf("at position %d, drafts %v, the record has %d accepted and next token %d; rule %s decides %d and %d",
				run.Position, run.ProposedIDs, run.RealAccepted, run.RealNextID, run.Rule, again.RealAccepted, again.RealNextID)
		}
	}
	if !slices.Equal(run.Hashes, again.Hashes) {
		if t.hashes++; t.hashesAt == nil {
			t.hashesAt = run
			t.hashesWhy = fmt.Sprintf("at position %d the logits of row %d of %d are not those of the request run alone (batch %d, %d rows)",
				run.Position, apart(run.Hashes, again.Hashes), run.Rows, run.Batch, run.BatchRows)
		}
	}
}
