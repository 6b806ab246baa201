package audit

import (
	"context"
	"slices"

	"exacta.dev/exacta/engine"
)

// countsAudit is the state of Counts.
type countsAudit struct {
	ctx      context.Context
	c        *Case
	b        *book
	progress Progress
	chosen   choice
	threads  map[string]*thread // open requests
	steps    stepper
	sims     map[string]*simulation
	lossy    liberties
	figures  figures
	claims   map[string]*tally
	paces    map[string]*pace
	classes  map[string]map[string]*classTally // by point
	ended    int                               // 1: no request failed, 2: one did, 0: not looked
	narrow   widths
	pairs    map[string]*Mixture
	lastStep int64
	told     bool // the arithmetic of a schedule
}

// Counts asks whether the numbers of a run add up, agree with what the client
// received and what the run reports of itself, and are those of what was
// declared: see the package comment. The error is of the records or the
// laboratory, not a verdict.
func Counts(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	a := &countsAudit{
		ctx: ctx, c: c, b: newBook("counts", c), progress: progress, chosen: c.choose(),
		threads: map[string]*thread{}, sims: map[string]*simulation{}, claims: map[string]*tally{}, paces: map[string]*pace{}, classes: map[string]map[string]*classTally{}, lastStep: -1,
	}
	for _, name := range countChecks {
		a.b.check(name)
	}
	a.steps.done = a.step
	w := walk{c: c, keep: c.Lab != nil, late: a.late}
	if err := w.run(ctx, a.record, a.end); err != nil {
		return nil, err
	}
	a.steps.flush()
	a.absent(&w)
	a.narrow.close(c, a.b)
	a.simulated()
	a.lossy.note(a.b)
	a.claimed()
	a.speeds()
	a.byClass()
	for _, why := range c.Disagree {
		a.b.check(checkFiles).holds(false)
		a.b.check(checkFiles).blame(nil, "%s", why)
	}
	a.stuck()
	if c.Lab == nil {
		a.b.check(checkDrafts).skip(c.NoLab)
		a.b.check(checkRule).skip(c.NoLab)
	}
	r := a.b.report(checkEmitted, checkSum)
	r.Figures = a.figures.json()
	return r, nil
}

// Checks against the request run again alone, and what stands in for them.
const (
	checkDrafts = "drafts are what the strategy proposes alone"
	checkRule   = "decisions are what the rule decides alone"
	checkFiles  = "configuration and provenance are those of the records"
	checkStuck  = "accept length is not stuck at 1 or k + 1"
)

// countChecks are the checks of the audit, the more telling first: findings are
// reported in this order.
var countChecks = []string{
	checkSpec, checkDraw, checkSupport, checkBeyond, checkEmitted, checkDecided, checkAccepted, checkClaims, checkDrafts, checkRule,
	checkWidth, checkRows, checkIDs, checkGreedy, checkKind, checkReal, checkLossy, checkPosition, checkSequence, checkPrefill, checkStop,
	checkMean, checkSpread, checkBatch, checkSum, checkRequests, checkRanks, checkGaps, checkVocab, checkTotals, checkGapless, checkCached, checkSpeeds, checkClasses, checkFiles, checkStuck,
}

// record checks one record, by itself and after those of its request before it.
func (a *countsAudit) record(co *course, r *engine.Record) error {
	a.steps.add(r)
	a.figures.add(co.req, r)
	a.tally(r)
	a.identities(co, r)
	if co.req != nil {
		a.narrow.add(co.req, r)
	}
	t := a.threads[r.Request]
	if t == nil {
		t = &thread{known: -1}
		if co.req != nil {
			t.known = len(co.req.Prompt)
		}
		a.threads[r.Request] = t
	}
	a.thread(t, co, r)
	if r.NextKind != engine.NextNone && co.req != nil && (r.Simulated || co.req.Simulation != "") {
		a.simulate(co.req, r)
	}
	return nil
}

// end checks a request of which all records were seen.
func (a *countsAudit) end(co *course) error {
	if co.req == nil {
		if k := a.b.check(checkRequests); !k.holds(false) {
			k.blameRequest(co.id, "there are records of request %s, which nobody asked for", co.id)
		}
		return nil
	}
	a.sum(co)
	if a.c.Lab == nil || !a.chosen.takes(co.req) {
		return nil
	}
	return a.again(co)
}

// sum compares the emitted tokens with the received ones.
func (a *countsAudit) sum(co *course) {
	req := co.req
	if !req.Ended {
		if k := a.b.check(checkRequests); !k.holds(a.c.CutShort) {
			k.blameRequest(co.id, "request %s has records of %d tokens and never ended, in a run that did", co.id, len(co.tokens))
		}
	}
	if !req.Ended && len(req.Received) == 0 {
		return
	}
	if n := len(req.Received); req.Finish == engine.FinishStop && n > 0 {
		if k := a.b.check(checkStop); !k.holds(!req.IgnoreStop && slices.Contains(req.Stop, req.Received[n-1])) {
			k.blameRequest(co.id, "request %s ended with %q after token %d, which is no stop token", co.id, req.Finish, req.Received[n-1])
		}
	}
	a.text(req)
	k := a.b.check(checkSum)
	if a.c.CutShort && len(co.tokens) < len(req.Received) {
		// The last records are not on disk.
		if !k.holds(slices.Equal(co.tokens, req.Received[:len(co.tokens)])) {
			k.blameRequest(co.id, "request %s: the records emitted other tokens than the client received, from output %d on", co.id, apart(co.tokens, req.Received))
		}
		return
	}
	if req.Ended && len(co.tokens) == len(req.Received) || !req.Ended && len(co.tokens) >= len(req.Received) {
		if !k.holds(slices.Equal(co.tokens[:len(req.Received)], req.Received)) {
			k.blameRequest(co.id, "request %s: the records emitted other tokens than the client received, from output %d on", co.id, apart(co.tokens, req.Received))
		}
		return
	}
	k.holds(false)
	k.blameRequest(co.id, "request %s: the records emitted %d tokens, the client received %d (%+.1f %%)",
		co.id, len(co.tokens), len(req.Received), 100*(float64(len(co.tokens))/float64(len(req.Received))-1))
}

// text checks that an output ends where a text ends it, and nowhere else.
func (a *countsAudit) text(req *Request) {
	if req.Finish != engine.FinishText && req.Until == nil {
		return
	}
	n, ended := 0, false
	if req.Until != nil {
		n, ended = req.Until().Push(req.Received)
	}
	ok := ended == (req.Finish == engine.FinishText) && (!ended || n == len(req.Received))
	if k := a.b.check(checkStop); !k.holds(ok) {
		k.blameRequest(req.ID, "request %s ended with %q after %d tokens; its stop strings end it: %v, after %d", req.ID, req.Finish, len(req.Received), ended, n)
	}
}

// late takes tokens that the records emit after the client's last.
func (a *countsAudit) late(co *course, r *engine.Record) {
	if k := a.b.check(checkSum); !k.holds(false) {
		k.blame(r, "request %s: the client received %d tokens, the records emit %v after them", co.id, len(co.req.Received), r.EmittedIDs)
	}
}

// absent looks for requests without records.
func (a *countsAudit) absent(w *walk) {
	k := a.b.check(checkRequests)
	for _, id := range sortedKeys(a.c.Requests) {
		if w.open[id] != nil {
			k.holds(true)
			continue
		}
		if a.c.Requests[id].unheard() {
			continue
		}
		if !k.holds(a.c.CutShort) {
			k.blameRequest(id, "request %s has no record", id)
		}
	}
}

// again compares with the request run alone along what it received.
func (a *countsAudit) again(co *course) error {
	a.progress.say("running request " + co.id + " again")
	t, err := a.c.again(a.ctx, co)
	if err != nil {
		return err
	}
	rule := a.b.check(checkRule)
	rule.Checked += t.steps
	rule.Failed += t.rule
	if t.ruleAt != nil {
		rule.blame(t.ruleAt, "%s", t.ruleWhy)
	}
	if co.req.K == 0 {
		return nil
	}
	k := a.b.check(checkDrafts)
	if sharedDrafts(co.req.Drafter) {
		k.skip("drafts of strategy " + co.req.Drafter + " depend on other requests")
		a.b.blindTo("drafts of strategy " + co.req.Drafter + " depend on other requests, so running one alone does not repeat them: a drafter that proposes worse than it should is not seen")
		return nil
	}
	k.Checked += t.steps
	k.Failed += t.drafts
	if t.draftsAt != nil {
		k.blame(t.draftsAt, "%s (%d of %d steps differ)", t.draftsWhy, t.drafts, t.steps)
	}
	return nil
}

// stuck raises an alarm where a drafter is never or always right and it could
// not be run again to see whether it should be.
func (a *countsAudit) stuck() {
	k := a.b.check(checkStuck)
	if a.b.check(checkDrafts).Checked > 0 {
		k.skip("the drafts were compared with the strategy's own, which says more")
		return
	}
	n, none, all := a.figures.drafted, a.figures.none, a.figures.all
	if n < 200 || a.figures.simulated {
		k.skip("fewer than 200 real verifications of drafts")
		return
	}
	if !k.holds(none < n && all < n) {
		k.blame(nil, "accept length is %s in all of %d verifications of drafts: a dead drafter, or logits that are no numbers", map[bool]string{true: "1", false: "k + 1"}[none == n], n)
	}
}
