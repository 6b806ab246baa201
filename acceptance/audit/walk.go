package audit

import (
	"context"

	"exacta.dev/exacta/engine"
)

// Progress is told what is being done; it may be nil.
type Progress func(string)

func (p Progress) say(text string) {
	if p != nil {
		p(text)
	}
}

// walk streams a case's records. each sees every record, end every request of
// which there are records, when its last was seen: a request is held no longer
// than it runs.
type walk struct {
	c    *Case
	keep bool // the records of open requests
	// late is told of tokens that are emitted after a request's last.
	late func(co *course, r *engine.Record)
	open map[string]*course
	done map[string]bool
	// order lists the open requests by first appearance.
	order []string
}

// course is what is kept of a request while its records pass.
type course struct {
	req  *Request // nil: nobody asked for it
	id   string
	rule string
	// tokens are what the records say was emitted, with the logits hash
	// behind each and where it was.
	tokens []int32
	hashes []uint64
	at     []place
	// tail are decided tokens beyond what was emitted, of the last record.
	tail       []int32
	tailHashes []uint64
	steps      []step           // its verifications
	recs       []*engine.Record // those with logits, where the walk keeps them
	simulated  bool
	lossy      bool
	simulation string
	preempted  int32
	last       *engine.Record
	keep       bool
}

// place is where a token was chosen.
type place struct {
	step               int64
	batch, rows, fresh int32   // sequences and rows of the step, prefill tokens in it
	row                int32   // of the sequence's span
	gap                float32 // between the two largest logits, as recorded
	drafted            bool    // the token was an accepted draft
	hashed             bool    // the record has the hash of the row behind it
	alone              bool    // the step had no drafts
}

// run walks. seen is called for each record after the course took it in.
func (w *walk) run(ctx context.Context, seen func(*course, *engine.Record) error, end func(*course) error) error {
	w.open, w.done = map[string]*course{}, map[string]bool{}
	for r, err := range w.c.Records() {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		co := w.open[r.Request]
		if co == nil {
			co = &course{id: r.Request, req: w.c.Requests[r.Request], rule: r.Rule, keep: w.keep}
			w.open[r.Request] = co
			w.order = append(w.order, r.Request)
		}
		if w.done[co.id] && len(r.EmittedIDs) > 0 {
			w.late(co, r)
		}
		co.take(r)
		if seen != nil {
			if err := seen(co, r); err != nil {
				return err
			}
		}
		if co.req != nil && co.req.Ended && len(co.tokens) > 0 && len(co.tokens) >= len(co.req.Received) && !w.done[co.id] {
			w.done[co.id] = true
			if err := end(co); err != nil {
				return err
			}
			co.release()
		}
	}
	for _, id := range w.order {
		if w.done[id] {
			continue
		}
		w.done[id] = true
		if err := end(w.open[id]); err != nil {
			return err
		}
	}
	return nil
}

// release drops what grows with the tokens.
func (co *course) release() {
	co.hashes, co.at, co.steps, co.recs, co.tail, co.tailHashes = nil, nil, nil, nil, nil, nil
	co.tokens = co.tokens[:0:0]
	co.last = nil
}

// take adds a record.
func (co *course) take(r *engine.Record) {
	co.simulated, co.lossy = co.simulated || r.Simulated, co.lossy || r.Lossy
	if r.Simulated {
		co.simulation = r.Simulation
	}
	co.preempted = max(co.preempted, r.Preemptions)
	co.last = r
	if r.NextKind == engine.NextNone {
		return
	}
	start := r.Position
	if r.Phase == engine.Prefill {
		start = r.Position + r.Rows - 1
	}
	co.steps = append(co.steps, step{start, r.KPlanned})
	if co.keep {
		co.recs = append(co.recs, r)
	}
	co.tail, co.tailHashes = nil, nil
	for i, id := range r.EmittedIDs {
		co.tokens = append(co.tokens, id)
		co.hashes = append(co.hashes, rowHash(r, i))
		co.at = append(co.at, place{
			gap: rowGap(r, i), step: r.Step, batch: r.Batch, rows: r.BatchRows, fresh: r.PrefillTokens, row: int32(i),
			drafted: i < int(r.Accepted), hashed: i < len(r.Hashes) && i <= int(r.Accepted),
			alone: r.KExecuted == 0 && len(r.ProposedIDs) == 0,
		})
	}
	for i := len(r.EmittedIDs); i <= int(r.Accepted) && i < len(r.Hashes); i++ {
		co.tail = append(co.tail, decided(r, i))
		co.tailHashes = append(co.tailHashes, r.Hashes[i])
	}
}

// rowHash is the hash of a record's row, or 0 where it has none.
func rowHash(r *engine.Record, i int) uint64 {
	if i < len(r.Hashes) {
		return r.Hashes[i]
	}
	return 0
}

// rowGap is the gap of a record's row, or -1 where it has none.
func rowGap(r *engine.Record, i int) float32 {
	if i < len(r.Gaps) {
		return r.Gaps[i]
	}
	return -1
}

// decided is token i of what a record decided: its accepted drafts and the next
// token; -1 where the record has no such draft.
func decided(r *engine.Record, i int) int32 {
	switch {
	case i == int(r.Accepted):
		return r.NextID
	case i < len(r.ProposedIDs):
		return r.ProposedIDs[i]
	}
	return -1
}
