package audit

import (
	"fmt"
	"slices"

	"exacta.dev/exacta/engine"
)

// book gathers the checks of an audit. Checks are reported in the order in
// which they were opened, findings in the same order: the more telling check is
// opened first.
type book struct {
	audit, run string
	checks     []*check
	by         map[string]*check
	tests      []Test
	blind      []string
	notes      []string
}

func newBook(audit string, c *Case) *book {
	return &book{audit: audit, run: c.Run, by: map[string]*check{}}
}

// check is one line of the report, with its first failure.
type check struct {
	Check
	finding *Finding
}

// check opens a check, or returns it.
func (b *book) check(name string) *check {
	c := b.by[name]
	if c == nil {
		c = &check{Check: Check{Name: name}}
		b.by[name] = c
		b.checks = append(b.checks, c)
	}
	return c
}

// holds counts one application, and returns whether it held. Where it did not,
// the caller says why by blame.
func (c *check) holds(ok bool) bool {
	c.Checked++
	if !ok {
		c.Failed++
	}
	return ok
}

// blame notes what was seen at a record, the first time. r may be nil.
func (c *check) blame(r *engine.Record, format string, args ...any) {
	if c.finding != nil {
		return
	}
	c.finding = &Finding{Check: c.Name, Why: fmt.Sprintf(format, args...), Step: -1}
	if r != nil {
		c.finding.Request, c.finding.Step = r.Request, r.Step
	}
}

// blameRequest notes what was seen at a request, the first time.
func (c *check) blameRequest(id string, format string, args ...any) {
	if c.finding == nil {
		c.blame(nil, format, args...)
		c.finding.Request = id
	}
}

// skip says why a check could not be made.
func (c *check) skip(why string) {
	if c.Why == "" {
		c.Why = why
	}
}

// blindTo notes what the audit can't see in this run, once.
func (b *book) blindTo(what string) {
	for _, s := range b.blind {
		if s == what {
			return
		}
	}
	b.blind = append(b.blind, what)
}

// note adds a figure in a sentence.
func (b *book) note(what string) { b.notes = append(b.notes, what) }

// test enters a statistical test under the check of the same name, which fails
// when p is below alpha. why says what was seen.
func (b *book) test(t Test, why string) {
	b.tests = append(b.tests, t)
	if c := b.check(t.Name); !c.holds(t.P >= t.Alpha) {
		c.blame(nil, "%s (p %.3g, alpha %.3g, %d samples)", why, t.P, t.Alpha, t.Samples)
	}
}

// report closes the book. essential are the checks without which nothing was
// shown: if none of them was made, the verdict is that it can't be checked.
func (b *book) report(essential ...string) *Report {
	r := &Report{Audit: b.audit, Run: b.run, Checks: []Check{}, Tests: b.tests, Findings: []Finding{}, Notes: b.notes, Blind: b.blind}
	for _, c := range b.checks {
		if c.Checked > 0 || c.Why != "" {
			r.Checks = append(r.Checks, c.Check)
		}
		if c.finding != nil {
			c.finding.Times = c.Failed
			r.Findings = append(r.Findings, *c.finding)
		}
	}
	shown, why := false, "the run has nothing that this audit looks at"
	for _, name := range essential {
		if c := b.by[name]; c != nil {
			shown = shown || c.Checked > 0
			if c.Checked == 0 && c.Why != "" {
				why = name + ": " + c.Why
			}
		}
	}
	switch {
	case len(r.Findings) > 0:
		r.Verdict, r.Why = Fail, r.Findings[0].Check+": "+r.Findings[0].Why
	case !shown:
		r.Verdict, r.Why = NotCheckable, why
	default:
		r.Verdict = Pass
	}
	return r
}

// sortedKeys lists the keys of a map in order: reports are the same each time.
func sortedKeys[T any](m map[string]T) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
