package faults

import (
	"fmt"

	"exacta.dev/exacta/acceptance/audit"
)

// assemble makes the matrix of the outcomes.
func assemble(list []Fault, outcomes []outcome, healthy int) *Matrix {
	m := &Matrix{Faults: []Row{}, HealthyRuns: healthy, NotCheckable: map[string]int{}}
	for i, f := range list {
		m.Faults = append(m.Faults, row(f, i, outcomes))
	}
	for _, o := range outcomes {
		if o.job.fault >= 0 {
			continue
		}
		flagged := false
		for _, a := range audits {
			switch r := o.reports[a.name]; r.Verdict {
			case audit.Fail, broken:
				flagged = true
				m.Alarms = append(m.Alarms, Alarm{Run: o.job.seed, Setup: Healthy(o.job.seed).String(), Audit: a.name, Evidence: r.Why})
			case audit.NotCheckable:
				m.NotCheckable[a.name]++
			}
		}
		if o.ended != "" {
			flagged = true
			m.Alarms = append(m.Alarms, Alarm{Run: o.job.seed, Setup: Healthy(o.job.seed).String(), Audit: "run", Evidence: o.ended})
		}
		if flagged {
			m.FalseAlarms++
		}
	}
	return m
}

// row makes a fault's line.
func row(f Fault, index int, outcomes []outcome) Row {
	r := Row{
		ID: f.ID, Name: f.Name, Report: f.Report, CaughtBy: []string{}, Outside: f.Outside, Expect: f.expected(), Setup: f.Setup.String(),
	}
	failed := map[string]int{}
	first := map[string]string{}
	for _, o := range outcomes {
		if o.job.fault != index || o.reports == nil {
			continue
		}
		r.Runs++
		caught := false
		for _, a := range audits {
			if rep := o.reports[a.name]; rep.Verdict == audit.Fail {
				caught = true
				failed[a.name]++
				if first[a.name] == "" {
					first[a.name] = evidence(rep)
				}
			}
		}
		if caught {
			r.Caught++
		}
	}
	for _, a := range audits {
		switch n := failed[a.name]; {
		case n == 0:
		case n == r.Runs:
			r.CaughtBy = append(r.CaughtBy, a.name)
		default:
			r.AlsoBy = append(r.AlsoBy, a.name)
		}
	}
	if r.Caught < r.Runs && r.Evidence == "" {
		r.Evidence = silence(index, outcomes)
	}
	for _, by := range append(append([]string{}, f.expected()...), append(r.CaughtBy, r.AlsoBy...)...) {
		if first[by] != "" {
			r.Evidence = by + ": " + first[by]
			break
		}
	}
	return r
}

// silence says what an audit that ended in an error said.
func silence(index int, outcomes []outcome) string {
	for _, o := range outcomes {
		for _, a := range audits {
			if o.job.fault == index && o.reports[a.name] != nil && o.reports[a.name].Verdict == broken {
				return a.name + " audit ended in an error: " + o.reports[a.name].Why
			}
		}
	}
	return ""
}

// evidence is the first finding of a report, with the record that it is about.
func evidence(r *audit.Report) string {
	if len(r.Findings) == 0 {
		return r.Why
	}
	f := r.Findings[0]
	text := f.Check + ": " + f.Why
	if f.Request != "" {
		text += fmt.Sprintf(" (request %s, step %d)", f.Request, f.Step)
	}
	return text
}
