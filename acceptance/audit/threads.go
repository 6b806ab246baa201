package audit

import (
	"slices"

	"exacta.dev/exacta/engine"
)

// Identities of the records of a request in a row.
const (
	checkPosition = "positions advance by what was committed"
	checkCached   = "prompts are read whole where no prefix cache was asked for"
	checkPrefill  = "a prompt, or a preempted sequence, is read to its known tokens"
	checkSequence = "records of a request are numbered, of one strategy and rule"
	checkStop     = "output ends at the first stop token or limit"
	checkSum      = "sum of emitted is what the client received"
	checkRequests = "every request has records, and an end"
)

// thread is what is kept of a request between its records.
type thread struct {
	known    int // tokens of prompt and output; -1 where the request is unknown
	out      int // tokens emitted
	seen     bool
	cut      bool // a step emitted less than it decided
	stopped  bool // a stop token was emitted
	next     int32
	seqStep  int32
	step     int64
	sequence int64
	pre      int32
}

// thread checks a record after those before it.
func (a *countsAudit) thread(t *thread, co *course, r *engine.Record) {
	a.numbered(t, co, r)
	a.position(t, r)
	a.ending(t, co, r)
	t.known += len(r.EmittedIDs)
	t.out += len(r.EmittedIDs)
	t.seen, t.seqStep, t.step, t.pre, t.sequence = true, r.SeqStep, r.Step, r.Preemptions, r.Sequence
}

// numbered checks what stays the same over a request's records.
func (a *countsAudit) numbered(t *thread, co *course, r *engine.Record) {
	ok := r.SeqStep == 0 && r.Preemptions >= 0
	if t.seen {
		ok = r.SeqStep == t.seqStep+1 && r.Step > t.step && r.Sequence == t.sequence && r.Preemptions >= t.pre
	}
	if co.req != nil {
		ok = ok && r.Drafter == co.req.Drafter && r.Rule == co.req.Rule
	}
	if k := a.b.check(checkSequence); !k.holds(ok) {
		want := "none before"
		if t.seen {
			want = "after number " + itoa(int(t.seqStep)) + " in step " + itoa(int(t.step))
		}
		k.blame(r, "record number %d (%s) in step %d of sequence %d, drafter %s, rule %s, %d preemptions", r.SeqStep, want, r.Step, r.Sequence, r.Drafter, r.Rule, r.Preemptions)
	}
}

// position checks that nothing is skipped or done twice: a decode step starts
// at the pending token, and a prompt, or a preempted sequence, is read from its
// beginning, or from a prefix that was cached, to exactly the tokens known.
func (a *countsAudit) position(t *thread, r *engine.Record) {
	k := a.b.check(checkPosition)
	fresh := !t.seen || r.Preemptions > t.pre
	switch {
	case fresh && r.Phase == engine.Prefill:
		if !k.holds(r.Position == r.Cached && r.Cached >= 0) {
			k.blame(r, "reading begins at position %d with %d tokens cached", r.Position, r.Cached)
		}
	case fresh:
		k.holds(false)
		k.blame(r, "decodes at position %d before anything was read", r.Position)
	default:
		if !k.holds(r.Position == t.next) {
			k.blame(r, "at position %d; the records before committed up to %d", r.Position, t.next)
		}
	}
	if k := a.b.check(checkCached); a.c.Uncached && !k.holds(r.Cached == 0) {
		k.blame(r, "%d tokens were taken from a prefix cache that nobody asked for", r.Cached)
	}
	t.next = r.Position + r.Rows
	if r.Phase == engine.Decode {
		t.next = r.Position + int32(r.Accepted.Length())
	}
	if t.known < 0 {
		return
	}
	p := a.b.check(checkPrefill)
	if r.Phase == engine.Decode {
		if !p.holds(int(r.Position) == t.known-1) {
			p.blame(r, "decodes at position %d with %d tokens known", r.Position, t.known)
		}
		return
	}
	end := int(r.Position + r.Rows)
	if !p.holds(r.Rows > 0 && end <= t.known && (end == t.known) == (r.NextKind != engine.NextNone)) {
		p.blame(r, "a chunk of %d rows to position %d of %d known tokens, next_kind %q", r.Rows, end, t.known, r.NextKind)
	}
}

// ending checks that nothing follows a stop token, a limit or a cut.
func (a *countsAudit) ending(t *thread, co *course, r *engine.Record) {
	k := a.b.check(checkStop)
	if !k.holds(!t.cut && !t.stopped) {
		k.blame(r, "goes on after its output ended")
		return
	}
	t.cut = r.NextKind != engine.NextNone && len(r.EmittedIDs) < int(r.Accepted.Length())
	if co.req == nil {
		return
	}
	for i, id := range r.EmittedIDs {
		if co.req.IgnoreStop || !slices.Contains(co.req.Stop, id) {
			continue
		}
		if t.stopped = true; !k.holds(i+1 == len(r.EmittedIDs)) {
			k.blame(r, "emits %v; token %d at %d ends the output", r.EmittedIDs, id, i)
		}
		break
	}
	n := t.out + len(r.EmittedIDs)
	if !k.holds(n <= co.req.MaxNew) {
		k.blame(r, "emits %d tokens in all; at most %d were asked for", n, co.req.MaxNew)
	}
	if t.cut && !t.stopped && !k.holds(n == co.req.MaxNew || co.req.Finish == engine.FinishLength || co.req.Finish == engine.FinishText || !co.req.Ended) {
		k.blame(r, "emits %d of %d decided tokens with no stop token and %d of %d tokens", len(r.EmittedIDs), r.Accepted.Length(), n, co.req.MaxNew)
	}
}
