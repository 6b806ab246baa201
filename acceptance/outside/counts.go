package outside

import (
	"fmt"
	"math"

	"exacta.dev/exacta/acceptance/audit"
)

// countsAudit is the state of Counts.
type countsAudit struct {
	*ledger
	ev      *Evidence
	opt     Options
	l       *Level
	t       *totals
	foreign string // why the counters aren't ours alone
	broken  string // why a level's counters can't be compared
	claimed bool   // some figure of acceptance was claimed
}

// Counts holds the server's figures to the identities that bind them, to what
// the client received, and to each other.
func Counts(ev *Evidence, opt Options) (audit.Report, []Figures) {
	c := &countsAudit{ledger: newLedger("counts", ev.Server.Address), ev: ev, opt: opt}
	var figures []Figures
	for _, l := range ev.Levels {
		c.l, c.t = l, sum(ev, l, opt)
		figures = append(figures, c.t.figures(l))
		for _, a := range l.Answers {
			if a.Err == nil {
				c.request(a)
			}
		}
		if l.Mode != PlainServer {
			c.level()
		}
	}
	c.textIndependence()
	c.blinds()
	why := ""
	switch {
	case c.broken != "":
		why = c.broken
	case c.foreign != "":
		why = c.foreign
	case !c.claimed && ev.Server.NoCounters != "":
		why = ev.Server.NoCounters + ", and its answers say nothing of acceptance"
	case !c.claimed:
		why = "the server claims nothing of acceptance: no counter of drafts moved, and its answers say nothing"
	}
	return c.close(why), figures
}

// level checks one level's counters.
func (c *countsAudit) level() {
	if c.l.NoCounters != "" {
		c.skip("counters", "%s, %d in flight: %s", c.l.Mode, c.l.Concurrency, c.l.NoCounters)
	}
	for _, name := range c.l.Fell {
		c.check("counters", false, "", "the counter of %s went down during the audit: the server began anew, or does not count", name)
	}
	if len(c.l.Fell) > 0 {
		return
	}
	t := c.t
	if t.steps != nil && *t.steps > 0 || t.proposed != nil && *t.proposed > 0 {
		c.claimed = true
	}
	if !c.traffic() {
		return
	}
	c.moving()
	if c.l.Mode == Off {
		c.off()
		return
	}
	c.shape()
	c.positions()
	c.histogram()
	c.sums()
	c.conservation()
	c.stream()
	c.lookup()
	c.declared()
	c.schedule()
}

// where names a level in a finding.
func (c *countsAudit) where() string {
	return fmt.Sprintf("%s, %d in flight", c.l.Mode, c.l.Concurrency)
}

// traffic compares the counters of requests and tokens with what was sent and
// received, and reports whether the level's counters can be used.
func (c *countsAudit) traffic() bool {
	n := c.t.counters
	if n == nil {
		return true
	}
	if c.t.requests < len(c.l.Answers) {
		c.broken = fmt.Sprintf("%s: a request failed, and how it was counted isn't known", c.where())
		c.skip("requests", "%s", c.broken)
		return false
	}
	r, p, g := float64(c.t.requests), float64(c.t.prompts), float64(c.t.tokens)
	switch {
	case n.Requests != nil && *n.Requests > r:
		c.foreign = fmt.Sprintf("%s: the server ended %.0f requests while this client sent %.0f: other traffic is in its counters", c.where(), *n.Requests, r)
	case n.Requests == nil && n.Prompt != nil && *n.Prompt > p && n.Generated != nil && *n.Generated > g:
		c.foreign = fmt.Sprintf("%s: the server read %.0f prompt tokens while this client sent %.0f: other traffic is in its counters", c.where(), *n.Prompt, p)
	}
	if c.foreign != "" {
		c.skip("requests", "%s", c.foreign)
		return false
	}
	for _, v := range []struct {
		name string
		at   *float64
		want float64
	}{{"requests", n.Requests, r}, {"prompt tokens", n.Prompt, p}, {"tokens", n.Generated, g}} {
		if v.at != nil {
			// A counter of prompt tokens may leave cached ones out.
			ok := *v.at == v.want || v.at == n.Prompt && *v.at < v.want
			c.check(v.name, ok, "", "%s: the server's counter of %s moved by %.0f, the client has %.0f", c.where(), v.name, *v.at, v.want)
		}
	}
	return true
}

// moving asks that counters move when there is something to count: several
// tokens in one piece are accepted drafts.
func (c *countsAudit) moving() {
	t := c.t
	if t.counters == nil || t.counters.Accepted == nil || !t.known || !c.ev.Server.Dialect.wire().perStep {
		return
	}
	many := 0
	for _, a := range c.l.Answers {
		for _, p := range a.Pieces {
			if p.Tokens > 1 {
				many++
			}
		}
	}
	if many*10 > t.pieces {
		c.check("counters move", *t.counters.Accepted > 0, "", "%s: %d of %d pieces of the stream have several tokens, but the counter of accepted drafts did not move", c.where(), many, t.pieces)
	}
}

// off asks that a request's switch was heeded.
func (c *countsAudit) off() {
	if p := c.t.proposed; p != nil {
		c.check("off is off", *p == 0, "", "%s: %.0f drafts were offered in requests that switch speculation off", c.where(), *p)
	}
}

// shape bounds drafts by steps, and accepted ones by drafts.
func (c *countsAudit) shape() {
	t := c.t
	if t.accepted != nil && t.proposed != nil {
		c.check("accepted <= drafted", *t.accepted <= *t.proposed, "", "%s: %.0f drafts accepted of %.0f", c.where(), *t.accepted, *t.proposed)
	}
	if t.steps == nil || *t.steps == 0 {
		return
	}
	exact := t.kFrom != "" && t.kFrom[len(t.kFrom)-5:] != "least"
	if t.proposed != nil && exact {
		most := float64(t.width) * *t.steps
		c.check("drafts <= steps x k", *t.proposed <= most, "", "%s: %.0f drafts in %.0f steps of at most %d (%s)", c.where(), *t.proposed, *t.steps, t.width, t.kFrom)
	}
	if t.accepted != nil && exact {
		length := 1 + *t.accepted / *t.steps
		c.check("accept length in 1..k+1", length >= 1 && length <= float64(t.k+1), "", "%s: an accept length of %.3f with k = %d (%s)", c.where(), length, t.k, t.kFrom)
	}
}

// positions binds the counters by position: they fall, and add up to the
// accepted drafts.
func (c *countsAudit) positions() {
	t := c.t
	if len(t.byPosition) == 0 || t.accepted == nil {
		return
	}
	total, before := 0.0, math.Inf(1)
	if t.steps != nil {
		before = *t.steps
	}
	for i, n := range t.byPosition {
		c.check("positions fall", n <= before, "", "%s: %.0f steps accepted the draft at position %d, %.0f got as far as the one before", c.where(), n, i+1, before)
		before = n
		total += n
	}
	name := ""
	if t.steps != nil && *t.steps > 0 && *t.accepted == total+*t.steps {
		name = ": the bonus tokens are counted as accepted drafts"
	}
	c.check("positions add up", total == *t.accepted, "", "%s: the positions add up to %.0f accepted drafts, the counter has %.0f%s", c.where(), total, *t.accepted, name)
}

// histogram binds the bins summed over the requests.
func (c *countsAudit) histogram() {
	if len(c.t.histogram) == 0 || len(c.t.byPosition) == 0 || c.t.steps == nil {
		return
	}
	above := 0.0
	for i := len(c.t.histogram) - 1; i > 0; i-- {
		above += c.t.histogram[i]
		if i-1 < len(c.t.byPosition) {
			c.check("histogram is that of the positions", c.t.byPosition[i-1] == above, "", "%s: by the histograms %.0f steps accepted %d drafts or more, by the counters %.0f", c.where(), above, i, c.t.byPosition[i-1])
		}
	}
}

// sums compares counters with the sums of what was said by request.
func (c *countsAudit) sums() {
	t := c.t
	if t.counters == nil || len(t.stated) < t.requests || t.requests == 0 {
		return
	}
	for _, v := range []struct {
		name    string
		counter *float64
		of      func(*Stated) *int64
	}{
		{"drafts", t.counters.Proposed, func(s *Stated) *int64 { return s.Proposed }},
		{"accepted drafts", t.counters.Accepted, func(s *Stated) *int64 { return s.Accepted }},
	} {
		if v.counter == nil {
			continue
		}
		total, all := 0.0, true
		for _, a := range t.stated {
			n := v.of(a.Stated)
			if all = all && n != nil; n != nil {
				total += float64(*n)
			}
		}
		if all {
			c.check("requests add up", total == *v.counter, "", "%s: the answers add up to %.0f %s, the counter moved by %.0f", c.where(), total, v.name, *v.counter)
		}
	}
}
