package outside

import (
	"fmt"
	"math"

	"exacta.dev/exacta/acceptance/audit"
)

// slack is the most accepted tokens that ends can have cut off a level's
// requests: a step accepts at most k drafts.
func (t *totals) slack() float64 { return float64(t.k * t.requests) }

// decodeSteps returns the decoding steps of a level, with drafts or without,
// where they are told. llama-server counts passes over all requests together;
// with one in flight, and prompts that one pass reads, those are steps.
func (t *totals) decodeSteps(l *Level) *float64 {
	if t.outputs != nil {
		return t.outputs
	}
	if t.counters != nil && t.counters.Passes != nil && l.Concurrency == 1 && t.longest <= 512 {
		return ptr(*t.counters.Passes - float64(t.requests))
	}
	return nil
}

// conservation binds tokens, steps and accepted drafts: each request has one
// token from its prompt, each step yields its accepted drafts and one token.
func (c *countsAudit) conservation() {
	t := c.t
	if t.accepted == nil || t.requests == 0 {
		return
	}
	steps, all := c.t.decodeSteps(c.l), true
	if steps == nil {
		steps, all = t.steps, false
	}
	if steps == nil || *steps == 0 && *t.accepted == 0 {
		return
	}
	if all && t.steps != nil {
		c.check("steps with drafts <= steps", *t.steps <= *steps, "", "%s: %.0f verifications in %.0f decoding steps", c.where(), *t.steps, *steps)
	}
	reached := float64(t.tokens-t.requests) - *steps
	why := ""
	if *t.accepted >= reached+*steps && *t.accepted <= reached+*steps+t.slack() {
		why = ": it looks as if the bonus tokens were counted as accepted drafts"
	}
	c.check("tokens = requests + steps + accepted", *t.accepted <= reached+t.slack(), "",
		"%s: %.0f drafts are claimed as accepted, but of %d tokens only %.0f are left beside %d first tokens and one from each of %.0f steps, and ends can have cut off %.0f: %.1f %% too many%s",
		c.where(), *t.accepted, t.tokens, reached, t.requests, *steps, t.slack(), 100*(*t.accepted/max(1, reached)-1), why)
	if all {
		c.check("tokens = requests + steps + accepted", *t.accepted >= reached, "",
			"%s: %.0f drafts are claimed as accepted, but %d tokens came from %d requests in %.0f steps: %.0f must have been", c.where(), *t.accepted, t.tokens, t.requests, *steps, reached)
	}
}

// stream holds the claims to the pieces of the stream, where a piece is a step.
func (c *countsAudit) stream() {
	const name = "pieces of the stream"
	t := c.t
	if !c.ev.Server.Dialect.wire().perStep || !t.known {
		c.skip(name, "the server's pieces aren't steps; package work looks at their times")
		return
	}
	long := 0
	for _, a := range c.l.Answers {
		for _, p := range a.Pieces {
			if p.Tokens > t.k+1 {
				long++
			}
		}
	}
	if long*5 > t.pieces {
		c.skip(name, "%s: %d of %d pieces have more than k + 1 = %d tokens: the server joins steps before it sends them", c.where(), long, t.pieces, t.k+1)
		return
	}
	if t.accepted != nil && (t.steps == nil || *t.steps > 0) {
		seen := float64(t.tokens - t.pieces)
		c.check(name, *t.accepted <= seen+t.slack(), "", "%s: %.0f drafts are claimed as accepted, but %d tokens came in %d pieces, so at most %.0f were, and ends can have cut off %.0f",
			c.where(), *t.accepted, t.tokens, t.pieces, seen, t.slack())
	}
	steps := t.decodeSteps(c.l)
	if steps == nil {
		return
	}
	c.check(name, float64(t.pieces-t.requests) <= *steps, "", "%s: %d pieces came behind the first ones, from %.0f steps: fewer steps are claimed than were sent", c.where(), t.pieces-t.requests, *steps)
	if c.l.Concurrency == 1 {
		c.joined(*steps)
	}
}

// joinedShare is the share of steps that an idle server and a quiet network may
// join with the one before, and splitShare that of tokens that they may part
// from the rest of their step.
const (
	joinedShare = 0.05
	splitShare  = 0.02
)

// joined tests whether more steps are claimed than pieces came.
func (c *countsAudit) joined(steps float64) {
	n := int64(steps)
	missing := max(0, n-int64(c.t.pieces-c.t.requests))
	most := binomialCritical(n, joinedShare, testAlpha)
	c.test(audit.Test{
		Name: "steps come as pieces", Samples: n, Statistic: float64(missing), P: binomialTail(missing, n, joinedShare),
		Detects: fmt.Sprintf("%d of %d steps that aren't in the stream, with up to %.0f %% joined by chance", most, n, 100*joinedShare),
	}, "%s: %.0f steps are claimed, but %d pieces came behind the first ones: the stream shows %.2f tokens at a time, the claim is %.2f",
		c.where(), steps, c.t.pieces-c.t.requests, float64(c.t.tokens)/float64(max(1, c.t.pieces)), float64(c.t.tokens-c.t.requests)/max(1, steps))
}

// lookup bounds the drafts of a drafter that finds the last token again in the
// request's own text: where it isn't there can be no draft.
func (c *countsAudit) lookup() {
	const name = "drafts were offered"
	t := c.t
	if !c.opt.Lookup || t.proposed == nil {
		return
	}
	steps := t.decodeSteps(c.l)
	if !c.ev.Server.Dialect.wire().perStep || !t.known || steps == nil {
		c.skip(name, "the server's pieces aren't steps")
		return
	}
	possible := 0
	for _, a := range c.l.Answers {
		if a.Exact {
			possible += offering(a)
		}
	}
	// Steps that the stream joined began at places that we don't know.
	most := float64(t.k) * (float64(possible) + max(0, *steps-float64(t.pieces-t.requests)))
	c.check(name, *t.proposed <= most, "", "%s: %.0f drafts are claimed, but in only %d of %.0f steps had the last token been there before: at most %.0f could be offered; the cap k = %d may have been counted instead",
		c.where(), *t.proposed, possible, *steps, most, t.k)
}

// offering counts an answer's steps at which the last token had occurred before.
func offering(a *Answer) int {
	seen := map[int32]bool{}
	for _, id := range a.Prompt {
		seen[id] = true
	}
	at, n := 0, 0
	for i, p := range a.Pieces {
		if i > 0 && at > 0 && at <= len(a.IDs) {
			last := a.IDs[at-1]
			before := seen[last]
			if before {
				n++
			}
		}
		for j := max(0, at-1); j < at+p.Tokens-1 && j < len(a.IDs); j++ {
			seen[a.IDs[j]] = true // all but the newest
		}
		at += p.Tokens
	}
	return n
}

// declared tests the accept length against the one that is claimed.
func (c *countsAudit) declared() {
	t := c.t
	if c.opt.Declared == 0 {
		return
	}
	if t.steps == nil || *t.steps == 0 || t.accepted == nil || t.k == 0 {
		c.skip("declared accept length", "%s: the server does not say how many steps there were", c.where())
		return
	}
	n, mean := int64(*t.steps), *t.accepted / *t.steps
	want := c.opt.Declared - 1
	p, detects := meanBound(n, float64(t.k), want, mean), float64(t.k)*math.Sqrt(math.Log(2/testAlpha)/(2*float64(n)))
	low := math.Floor(want)
	if m, above, short, ok := t.twoBins(); ok && float64(m) == low && mean <= low+1 {
		// A draw between two lengths is binomial; of the short steps it isn't
		// known how they would have come out.
		f := want - low
		p = 0
		for n2 := above; n2 <= above+short; n2++ {
			p = max(p, binomialTwoSided(n2, n, f))
		}
		detects = 5.4*math.Sqrt(max(f*(1-f), 0.01)/float64(n)) + float64(short)/float64(n)
	}
	c.test(audit.Test{
		Name: "declared accept length", Samples: n, Statistic: 1 + mean, P: p,
		Detects: fmt.Sprintf("an accept length that is off by %.3f (%.1f %%)", detects, 100*detects/c.opt.Declared),
	}, "%s: the accept length is %.3f over %d steps, %.1f %% off the declared %.3f", c.where(), 1+mean, n, 100*((1+mean)/c.opt.Declared-1), c.opt.Declared)
}

// twoBins reports whether a step accepts only m or m+1 drafts, wherever it was
// offered as many, how many steps accepted m+1, and how many steps were offered
// fewer than k: at a request's end.
func (t *totals) twoBins() (m int, above, short int64, ok bool) {
	joint := t.joint()
	if t.steps == nil || t.proposed == nil || len(joint) == 0 {
		return 0, 0, 0, false
	}
	deficit := float64(t.k)**t.steps - *t.proposed
	if deficit < 0 || deficit > t.slack() {
		return 0, 0, 0, false
	}
	for m < len(joint) && joint[m] >= *t.steps-deficit {
		m++
	}
	if m < len(joint) {
		above = int64(joint[m])
	}
	return m, above, int64(deficit), m+1 >= len(joint) || joint[m+1] == 0
}
