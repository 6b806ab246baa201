package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// Checks of the work audit.
const (
	checkTarget    = "the target's pass executed the rows that the records claim"
	checkWeights   = "each pass read every weight matrix at least once"
	checkComputed  = "no more tokens were committed than rows computed"
	checkExecuted  = "executed width is planned k + 1"
	checkDraftWork = "drafting executed what its drafts need"
	checkOwn       = "drafts are those that the strategy's work gives"
	checkAllRows   = "all rows of a step, rejected ones too, are those of the request alone"
	checkDraftTime = "no drafting is faster than this machine drafts"
	checkFilled    = "emitted tokens are those that the step computed"
	checkShared    = "work and durations are the same in all records of a step"
	checkTimes     = "drafting and verification took time, together no more than the step"
	checkRoof      = "no pass is faster than reading its weights allows"
	checkPlainTime = "a speculative round takes no less than a plain step"
	checkFlat      = "step time does not depend on accept length"
)

var workChecks = []string{
	checkTarget, checkComputed, checkDraftWork, checkExecuted, checkWidth, checkOwn, checkAllRows, checkFilled, checkWeights, checkShared, checkFlat, checkTimes, checkDraftTime, checkRoof, checkPlainTime,
}

// workAudit is the state of Work.
type workAudit struct {
	ctx      context.Context
	c        *Case
	b        *book
	progress Progress
	chosen   choice
	steps    stepper
	deferred []deferredDraft
	shapes   map[string]int // of deferred
	short    map[string]*shortfall
	narrow   widths
	roof     float64
	flat     map[string]*flatness
	plain    map[int32]*quantiles // step times by batch
	rounds   map[int32]*quantiles
	last     []*engine.Record
	unit     kernels.Counters // of one row without logits
	paused   pauses
}

// Work asks whether every step did the work that it claims: see the package
// comment. The error is of the records or the laboratory, not a verdict.
func Work(ctx context.Context, c *Case, progress func(string)) (*Report, error) {
	a := &workAudit{
		ctx: ctx, c: c, b: newBook("work", c), progress: progress, chosen: c.sample(),
		paused: pauses{}, shapes: map[string]int{}, short: map[string]*shortfall{}, flat: map[string]*flatness{}, plain: map[int32]*quantiles{}, rounds: map[int32]*quantiles{},
	}
	for _, name := range workChecks {
		a.b.check(name)
	}
	if c.Lab == nil {
		for _, name := range []string{checkTarget, checkWeights, checkDraftWork, checkOwn, checkAllRows, checkRoof} {
			a.b.check(name).skip(c.NoLab)
		}
	} else {
		a.unit = c.Lab.Cost([]SpanCost{{Rows: 1}})
		if !c.Elsewhere {
			a.roof = c.Lab.Roofline()
		} else {
			a.b.blindTo("the run is of another machine, or says so: what this one could do at best, and what drafting takes, is not held against its times")
		}
	}
	a.steps.done = a.step
	w := walk{c: c, keep: c.Lab != nil, late: func(*course, *engine.Record) {}}
	if err := w.run(ctx, a.record, a.end); err != nil {
		return nil, err
	}
	a.steps.flush()
	a.drafting()
	a.narrow.close(c, a.b)
	a.close()
	return a.b.report(checkTarget, checkShared), nil
}

// record checks one record.
func (a *workAudit) record(co *course, r *engine.Record) error {
	a.steps.add(r)
	if co.req != nil {
		a.narrow.add(co.req, r)
	}
	if r.NextKind == engine.NextNone {
		return nil
	}
	if k := a.b.check(checkComputed); r.Phase == engine.Decode && !k.holds(int32(r.Accepted.Length()) <= r.Rows && int(r.Accepted.Length()) <= len(r.Hashes)) {
		k.blame(r, "%d tokens committed from %d rows, of which %d have logits", r.Accepted.Length(), r.Rows, len(r.Hashes))
	}
	k := a.b.check(checkFilled)
	for i, id := range r.EmittedIDs {
		if i <= int(r.Accepted) && !k.holds(id == decided(r, i)) {
			k.blame(r, "token %d was emitted where the step computed %d: it costs nothing to make, and other work to serve", id, decided(r, i))
			break
		}
	}
	return nil
}

// end runs a few requests of each strategy again, to learn what drafting costs
// and gives.
func (a *workAudit) end(co *course) error {
	if co.req == nil || a.c.Lab == nil || co.req.K == 0 || !a.chosen.takes(co.req) {
		return nil
	}
	a.progress.say("running request " + co.id + " again")
	t, err := a.c.again(a.ctx, co)
	if err != nil {
		return err
	}
	w := a.b.check(checkExecuted)
	if t.fixed && !sharedDrafts(co.req.Drafter) {
		w.Checked += t.steps
		w.Failed += t.narrow
		if t.narrowAt != nil {
			w.blame(t.narrowAt, "%d drafts were planned and %d verified; the strategy fills every draft", t.narrowAt.KPlanned, t.narrowAt.KExecuted)
		}
	}
	rows := a.b.check(checkAllRows)
	rows.Checked += t.steps - t.drafts
	rows.Failed += t.hashes
	if t.hashesAt != nil {
		rows.blame(t.hashesAt, "%s", t.hashesWhy)
	}
	if sharedDrafts(co.req.Drafter) {
		a.b.blindTo("drafts of strategy " + co.req.Drafter + " depend on other requests: whether its work gives them is not repeated")
		return nil
	}
	k := a.b.check(checkOwn)
	k.Checked += t.steps
	k.Failed += t.drafts
	if t.draftsAt != nil {
		k.blame(t.draftsAt, "%s", t.draftsWhy)
	}
	return nil
}

// step checks an engine step.
func (a *workAudit) step(recs []*engine.Record) {
	a.shared(recs)
	a.durations(recs)
	loose := false
	for _, r := range recs {
		if req := a.c.Requests[r.Request]; req != nil && req.K > 0 {
			loose = a.paused.loose(r) || loose
		}
	}
	if a.c.Lab == nil {
		return
	}
	if a.target(recs) {
		if loose {
			a.b.blindTo("what drafting did in steps that planned no drafts, and in those right after them, is not held against its cost alone")
		} else {
			a.drafted(recs)
		}
	}
	a.timing(recs)
}

// shared checks what belongs to the step and not to a sequence.
func (a *workAudit) shared(recs []*engine.Record) {
	k := a.b.check(checkShared)
	for _, r := range recs {
		same := r.TotalNs == recs[0].TotalNs && r.VerifyNs == recs[0].VerifyNs && r.TargetWork == recs[0].TargetWork && r.DraftWork == recs[0].DraftWork
		if !k.holds(same) {
			k.blame(r, "work or durations differ from those of request %s in the same step", recs[0].Request)
		}
	}
}

// shortfall sums up the steps of one width, so that evidence can name the
// arithmetic.
type shortfall struct {
	first          *engine.Record
	why            string
	steps, claimed int64
	done           float64
}

// target compares the counters of the target's pass with what the widths of the
// records need, exactly. It reports whether the records tell the whole step.
func (a *workAudit) target(recs []*engine.Record) bool {
	if int(recs[0].Batch) != len(recs) {
		return false // a sequence that failed has no record
	}
	spans := make([]SpanCost, len(recs))
	rows, pure := int64(0), true
	for i, r := range recs {
		spans[i] = SpanCost{Start: int(r.Position), Rows: int(r.Rows)}
		if r.Phase == engine.Decode {
			spans[i].Rows = int(r.TreeNodes) + 1
			spans[i].LogitRows = spans[i].Rows
			spans[i].Own = pairs(r)
		} else if q := a.c.Requests[r.Request]; q != nil && q.PromptLogits {
			spans[i].LogitRows = spans[i].Rows
		} else if r.NextKind != engine.NextNone {
			spans[i].LogitRows = 1
		}
		rows += int64(spans[i].Rows)
		pure = pure && r.Phase == engine.Decode
	}
	if n := int(recs[0].IdleRows); n > 0 {
		spans = append(spans, SpanCost{Rows: n, LogitRows: n, Idle: true})
		rows += int64(n)
	}
	want, got := a.c.Lab.Cost(spans), recs[0].TargetWork
	what := differ(want, got)
	if k := a.b.check(checkTarget); !k.holds(what == "") || a.short[widthKey(recs, pure)] != nil {
		a.fallsShort(recs, pure, rows, want, got, what)
	}
	if k := a.b.check(checkWeights); !k.holds(got.WeightBytes >= want.WeightBytes && got.Ops >= want.Ops) {
		k.blame(recs[0], "%d operations read %d bytes of weights; the pass needs at least %d and %d", got.Ops, got.WeightBytes, want.Ops, want.WeightBytes)
	}
	return what == ""
}

// differ names the first counter that is not as claimed, or "".
func differ(want, got kernels.Counters) string {
	for _, c := range []struct {
		name      string
		want, got uint64
	}{
		{"rows of matrix products", want.MatMulRows, got.MatMulRows}, {"multiply-adds", want.MACs, got.MACs},
		{"rows of attention", want.AttendRows, got.AttendRows}, {"keys visited", want.KVTokens, got.KVTokens},
		{"rows of recurrent layers", want.DeltaRows, got.DeltaRows}, {"logits rows", want.LogitRows, got.LogitRows},
	} {
		if c.want != c.got {
			return fmt.Sprintf("%d %s, its records need %d", c.got, c.name, c.want)
		}
	}
	return ""
}

// Steps that are of no one width.
const (
	withPrefill = "with prefill"
	mixedWidths = "of several widths"
)

// widthKey groups steps by the width of their spans.
func widthKey(recs []*engine.Record, pure bool) string {
	if !pure {
		return withPrefill
	}
	for _, r := range recs {
		if r.TreeNodes != recs[0].TreeNodes {
			return mixedWidths
		}
	}
	return fmt.Sprintf("k %d", recs[0].TreeNodes)
}

// fallsShort notes a step whose counters are not as claimed, with the rows that
// they amount to.
func (a *workAudit) fallsShort(recs []*engine.Record, pure bool, rows int64, want, got kernels.Counters, what string) {
	key := widthKey(recs, pure)
	s := a.short[key]
	if s == nil {
		s = &shortfall{first: recs[0], why: what}
		a.short[key] = s
	}
	s.steps += int64(len(recs))
	s.claimed += rows
	s.done += float64(rows) * float64(got.MACs) / float64(max(1, want.MACs)) // in rows of the whole pass
}

// close enters the shortfalls and the tests of times.
func (a *workAudit) close() {
	keys := sortedKeys(a.short)
	slices.SortStableFunc(keys, func(x, y string) int { return cmp.Compare(a.short[y].claimed, a.short[x].claimed) })
	for _, key := range keys {
		s := a.short[key]
		a.b.check(checkTarget).blame(s.first, "%s = %d rows claimed, %.0f computed (%+.1f %%) by their multiply-adds; in the first step %s",
			arithmetic(key, s), s.claimed, s.done, 100*(s.done/float64(max(1, s.claimed))-1), s.why)
	}
	a.times()
	a.b.blindTo("work that no counter of the backend sees (the host's sampling and text) shows in times alone")
}

// arithmetic says how many rows so many steps must have.
func arithmetic(key string, s *shortfall) string {
	if key == withPrefill || key == mixedWidths {
		return fmt.Sprintf("%d spans in steps %s", s.steps, key)
	}
	return fmt.Sprintf("%d steps x (%s + 1) rows", s.steps, key)
}
