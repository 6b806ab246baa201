package audit

import (
	"context"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/verify"
)

// Names of the checks of the tokens audit.
const (
	checkForced     = "token under teacher forcing"
	checkForcedRow  = "logits hash under teacher forcing"
	checkAfterDraft = "token after a forced run is the target's choice there"
	checkRepeat     = "drafts, decisions and logits repeat when the request runs alone"
	checkPossible   = "sampled token has a positive probability"
	checkPIT        = "sampled tokens fill the target's distribution evenly"
	checkLogProb    = "log-probabilities of sampled tokens have the target's mean"
	checkPlain      = "token and logits hash under plain replay"
	checkHashed     = "every committed token has its logits row"
	checkReceived   = "received tokens are the recorded ones"
	checkNumbers    = "no logit is NaN"
)

var tokenChecks = []string{
	checkForced, checkForcedRow, checkAfterDraft, checkRepeat, checkPossible, checkPIT, checkLogProb, checkPlain, checkHashed, checkReceived, checkNumbers,
}

// tokensAudit is the state of Tokens.
type tokensAudit struct {
	ctx      context.Context
	c        *Case
	b        *book
	progress Progress
	plain    bool // replayed too
	chosen   choice
	told     int // divergences told in full
	plains   map[string]*trace
	forcings forcings
	sampled  calibration

	requests, simulated, lossy, drafts, liked, unfinished int64
}

// Tokens asks whether the output is what plain decoding gives: see the package
// comment. The error is of the records or the laboratory, not a verdict.
func Tokens(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	a := &tokensAudit{
		ctx: ctx, c: c, b: newBook("tokens", c), progress: progress,
		plain: c.plainToo(), chosen: c.choose(), plains: map[string]*trace{},
	}
	for _, name := range tokenChecks {
		a.b.check(name)
	}
	if c.Lab == nil {
		for _, name := range []string{checkForced, checkForcedRow, checkAfterDraft} {
			a.b.check(name).skip(c.NoLab)
		}
	}
	w := walk{c: c, keep: c.Lab != nil, late: a.late}
	if err := w.run(ctx, nil, a.request); err != nil {
		return nil, err
	}
	for _, id := range sortedKeys(c.Requests) {
		if k := a.b.check(checkReceived); w.open[id] == nil && !c.CutShort && !c.Requests[id].unheard() && !k.holds(false) {
			k.blameRequest(id, "request %s: the client received %d tokens, of which there is no record", id, len(c.Requests[id].Received))
		}
	}
	a.close()
	return a.settled(a.b.report(checkForced, checkForcedRow, checkAfterDraft)), nil
}

// settled is the report, which does not pass where a lossy rule decided: what it
// accepted can be said to repeat, not to be the target's.
func (a *tokensAudit) settled(r *Report) *Report {
	if a.lossy > 0 && r.Verdict == Pass {
		r.Verdict = NotCheckable
		r.Why = fmt.Sprintf("%d of %d requests were decided by a lossy rule, which accepts what the target would not have said: their output has nothing that it must equal", a.lossy, a.requests)
	}
	return r
}

// request audits a request whose records have all been seen.
func (a *tokensAudit) request(co *course) error {
	if co.req == nil {
		a.b.check(checkReceived).holds(false)
		a.b.check(checkReceived).blameRequest(co.id, "there are records of request %s, which nobody asked for", co.id)
		return nil
	}
	a.requests++
	if co.simulated {
		a.simulated++
	}
	if !co.req.Ended || len(co.tokens) < len(co.req.Received) {
		a.unfinished++
	}
	a.received(co)
	if a.c.Lab == nil {
		return nil
	}
	rule, err := verify.New(co.rule)
	if co.lossy = co.lossy || err == nil && engine.Lossy(rule); co.lossy {
		a.lossy++
	}
	if err != nil {
		a.b.blindTo(fmt.Sprintf("rule %q is not one of this program's: what it should decide is not known, only the target's rows are compared", co.rule))
	}
	a.progress.say("teacher forcing request " + co.id)
	if err := a.forced(co, rule); err != nil {
		return fmt.Errorf("request %s: teacher forcing: %w", co.id, err)
	}
	promised := rule != nil && !co.simulated && rule.Exact(co.req.Params)
	switch {
	case rule == nil:
	case !rule.Exact(co.req.Params):
		return a.repeat(co)
	case a.plain && promised:
		a.progress.say("plain replay of request " + co.id)
		if err := a.replay(co); err != nil {
			return fmt.Errorf("request %s: plain replay: %w", co.id, err)
		}
	}
	return nil
}

// received compares the records with what the client saw.
func (a *tokensAudit) received(co *course) {
	k := a.b.check(checkHashed)
	for j, at := range co.at {
		if !k.holds(at.hashed) {
			k.blameRequest(co.id, "request %s, output %d: token %d was committed in step %d with no logits row behind it", co.id, j, co.tokens[j], at.step)
		}
	}
	want := co.req.Received
	if len(want) == 0 && !co.req.Ended {
		if k := a.b.check(checkReceived); !a.c.CutShort && !k.holds(false) {
			k.blameRequest(co.id, "request %s: the records emitted %d tokens, and the client received nothing", co.id, len(co.tokens))
		}
		return
	}
	n := min(len(want), len(co.tokens))
	ok := slices.Equal(want[:n], co.tokens[:n]) && (n == len(want) || a.c.CutShort) && (n == len(co.tokens) || !co.req.Ended)
	if k := a.b.check(checkReceived); !k.holds(ok) {
		k.blameRequest(co.id, "request %s: the client received %d tokens, the records emitted %d; they part at output %d",
			co.id, len(want), len(co.tokens), apart(want, co.tokens))
	}
}

// late takes tokens that the records emit after the client's last.
func (a *tokensAudit) late(co *course, r *engine.Record) {
	if k := a.b.check(checkReceived); !k.holds(false) {
		k.blame(r, "request %s: the client received %d tokens, the records emit %v after them", co.id, len(co.req.Received), r.EmittedIDs)
	}
}

// apart is the first index at which two slices differ.
func apart[T comparable](a, b []T) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// forced compares with teacher forcing of prompt and output. rule is nil where it
// is not known.
func (a *tokensAudit) forced(co *course, rule engine.Verifier) error {
	n := len(co.tokens)
	if n == 0 || slices.Min(co.tokens) < 0 {
		return nil
	}
	if len(co.req.Received) == n && !slices.Equal(co.tokens, co.req.Received) {
		copy(co.tokens, co.req.Received) // the client's are the ones to judge
	}
	rows, err := a.judge(co, rule)
	if err != nil {
		return err
	}
	promised := rule != nil && rule.Exact(co.req.Params)
	for j, row := range rows {
		if k := a.b.check(checkNumbers); !k.holds(row.nans == 0) {
			k.blameRequest(co.id, "request %s: %d logits of the row at position %d are not numbers", co.id, row.nans, len(co.req.Prompt)-1+j)
		}
		if j >= n {
			a.tail(co, j-n, row)
			continue
		}
		if err := a.output(co, j, row, rule != nil, promised); err != nil {
			return err
		}
	}
	return nil
}

// output compares output j of a request with its row.
func (a *tokensAudit) output(co *course, j int, row judged, known, promised bool) error {
	at, id := co.at[j], co.tokens[j]
	chosen := ""
	switch {
	case !known:
	case co.simulated && at.drafted:
		a.drafts++
		if id == row.choice {
			a.liked++
		}
	case co.simulated:
		chosen = checkAfterDraft
	case promised || at.alone:
		chosen = checkForced
	}
	if chosen != "" {
		if k := a.b.check(chosen); !k.holds(id == row.choice) && k.finding == nil {
			if err := a.tell(k, co, j, row); err != nil {
				return err
			}
		}
	}
	if k := a.b.check(checkForcedRow); at.hashed && !k.holds(co.hashes[j] == row.hash && (at.gap == row.gap || row.nans > 0)) && k.finding == nil {
		return a.tell(k, co, j, row)
	}
	return nil
}

// tail compares the row behind a decided token that a stop or the length limit
// cut.
func (a *tokensAudit) tail(co *course, i int, row judged) {
	if k := a.b.check(checkForcedRow); i < len(co.tailHashes) && !k.holds(co.tailHashes[i] == row.hash) {
		k.blameRequest(co.id, "request %s: the logits behind decided token %d past the output's end are not those of teacher forcing", co.id, i)
	}
}

// repeat runs a request whose rule promises a distribution again, alone: drafts,
// decisions and rows are functions of the request, so they are the same.
func (a *tokensAudit) repeat(co *course) error {
	if !a.chosen.takes(co.req) {
		a.b.blindTo("only a share of the requests was run again (--replay both runs all)")
		return nil
	}
	a.progress.say("running request " + co.id + " again")
	t, err := a.c.again(a.ctx, co)
	if err != nil {
		return err
	}
	k := a.b.check(checkRepeat)
	k.Checked += t.steps
	if sharedDrafts(co.req.Drafter) {
		a.b.blindTo("drafts of strategy " + co.req.Drafter + " depend on other requests: its decisions are repeated only where it proposes the same alone")
	} else {
		k.Failed += t.drafts
		if t.draftsAt != nil {
			k.blame(t.draftsAt, "%s", t.draftsWhy)
		}
	}
	k.Failed += t.rule + t.hashes
	if t.ruleAt != nil {
		k.blame(t.ruleAt, "%s", t.ruleWhy)
	}
	if t.hashesAt != nil {
		k.blame(t.hashesAt, "%s", t.hashesWhy)
	}
	return nil
}

// close sums up.
func (a *tokensAudit) close() {
	if a.unfinished > 0 {
		a.b.note(fmt.Sprintf("%d requests were cut short by the end of the run, and compared as far as their records go", a.unfinished))
	}
	a.sampled.close(a.b)
	if a.simulated > 0 {
		a.b.note(fmt.Sprintf("%d of %d requests are simulated: their text means nothing, and nothing is said of it but that every step's rows, and the token after the forced drafts, are the target's", a.simulated, a.requests))
		if a.drafts > 0 {
			a.b.note(fmt.Sprintf("%.1f %% of the %d drafts that simulation committed are the target's choice", 100*float64(a.liked)/float64(a.drafts), a.drafts))
		}
	}
	if a.lossy > 0 && a.c.Lab != nil {
		a.b.note(fmt.Sprintf("of the %d requests under a lossy rule every step's rows, the tokens of steps without drafts, and that drafts and decisions repeat, were checked all the same", a.lossy))
	}
	if a.c.Lab != nil {
		a.b.blindTo("rows of rejected drafts are not on the committed path: teacher forcing does not see them")
		if !a.plain {
			a.b.blindTo("plain decoding was not replayed (--replay both): teacher forcing stands for it, by a prefill's rows")
		}
	}
}
