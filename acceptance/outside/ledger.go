package outside

import (
	"fmt"

	"exacta.dev/exacta/acceptance/audit"
)

// ledger keeps the checks of one report in the order in which they were begun,
// with one finding for each that failed.
type ledger struct {
	report audit.Report
	at     map[string]int // index into Checks
	found  map[string]int // index into Findings
}

func newLedger(name, run string) *ledger {
	return &ledger{
		report: audit.Report{Audit: name, Run: run, Findings: []audit.Finding{}, Checks: []audit.Check{}},
		at:     map[string]int{}, found: map[string]int{},
	}
}

// check counts that a check applied, and its failing with the reason.
func (l *ledger) check(name string, ok bool, request, format string, args ...any) {
	c := l.line(name)
	c.Checked++
	if ok {
		return
	}
	c.Failed++
	if i, seen := l.found[name]; seen {
		l.report.Findings[i].Times++
		return
	}
	l.found[name] = len(l.report.Findings)
	l.report.Findings = append(l.report.Findings, audit.Finding{Check: name, Why: fmt.Sprintf(format, args...), Request: request, Step: -1, Times: 1})
}

// skip says why a check could not be made.
func (l *ledger) skip(name, format string, args ...any) {
	if c := l.line(name); c.Why == "" {
		c.Why = fmt.Sprintf(format, args...)
	}
}

func (l *ledger) line(name string) *audit.Check {
	i, ok := l.at[name]
	if !ok {
		i = len(l.report.Checks)
		l.at[name] = i
		l.report.Checks = append(l.report.Checks, audit.Check{Name: name})
	}
	return &l.report.Checks[i]
}

// test records a statistical test and fails the check of its name below alpha.
func (l *ledger) test(t audit.Test, format string, args ...any) {
	t.Alpha = testAlpha
	l.report.Tests = append(l.report.Tests, t)
	l.check(t.Name, t.P >= t.Alpha, "", format, args...)
}

// note keeps a figure in a sentence.
func (l *ledger) note(format string, args ...any) {
	l.report.Notes = append(l.report.Notes, fmt.Sprintf(format, args...))
}

func (l *ledger) blind(format string, args ...any) {
	l.report.Blind = append(l.report.Blind, fmt.Sprintf(format, args...))
}

// close gives the report: fail with any finding; not checkable where why says so
// or nothing was checked; else pass.
func (l *ledger) close(why string) audit.Report {
	checked := int64(0)
	for _, c := range l.report.Checks {
		checked += c.Checked
	}
	switch {
	case len(l.report.Findings) > 0:
		l.report.Verdict, l.report.Why = audit.Fail, l.report.Findings[0].Why
	case why != "":
		l.report.Verdict, l.report.Why = audit.NotCheckable, why
	case checked == 0:
		l.report.Verdict, l.report.Why = audit.NotCheckable, "nothing could be checked"
	default:
		l.report.Verdict = audit.Pass
	}
	return l.report
}
