package audit

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// checkWidth is about steps of a fixed k: an accept length says nothing without
// the width that it was verified at, and a drawn one least of all.
const checkWidth = "a step plans the k that was asked for"

// widths looks for steps that planned fewer drafts than were asked for, by no
// policy, although the output had room for them. A step may be narrow beside a prompt,
// for want of pages (it then ends at a page's border), or of the step's token
// budget: then it is as wide as the widest step of the run.
type widths struct {
	out     map[string]int // tokens emitted by open requests
	steps   int64
	narrow  int64
	example *engine.Record
	widest  int32 // rows of a step
}

// add takes a record of a request that is known.
func (w *widths) add(req *Request, r *engine.Record) {
	w.widest = max(w.widest, r.BatchRows)
	if !req.Full || req.K == 0 {
		return
	}
	if w.out == nil {
		w.out = map[string]int{}
	}
	out := w.out[r.Request]
	w.out[r.Request] += len(r.EmittedIDs)
	if r.Phase != engine.Decode {
		return
	}
	w.steps++
	end := r.Position + 1 + r.KPlanned
	short := req.Finish == engine.FinishLength && len(req.Received) < req.MaxNew // the context's end
	if int(r.KPlanned) >= min(req.K, req.MaxNew-out-1) || r.PrefillTokens > 0 || end%kernels.PageTokens == 0 || (end+1)%kernels.PageTokens == 0 || short {
		return
	}
	w.narrow++
	if w.example == nil || r.BatchRows < w.example.BatchRows {
		w.example = r
	}
}

// close enters the check.
func (w *widths) close(c *Case, b *book) {
	k := b.check(checkWidth)
	k.Checked += w.steps
	if w.example == nil || w.example.BatchRows == w.widest {
		return
	}
	req := c.Requests[w.example.Request]
	k.Failed += w.narrow
	what := req.Simulation
	if what == "" {
		what = req.Drafter
	}
	k.blame(w.example, "%s was asked for at k %d: %d rows a step; the step planned %d drafts, %d rows, with room for more (%d of %d steps)",
		what, req.K, req.K+1, w.example.KPlanned, w.example.KPlanned+1, w.narrow, w.steps)
}
