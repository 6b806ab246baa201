package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"exacta.dev/exacta/experiments"
)

// Report is what is printed.
type Report struct {
	Runs []*Run
}

// Run is one run directory.
type Run struct {
	Dir  string `json:"dir"`
	Name string `json:"name"`
	// Kind is strategies, load, sweep, or the format of a result file.
	Kind string `json:"kind"`
	// Stamps say what the figures are not: simulated, lossy, interrupted. Loud ones
	// are in red.
	Stamps []Stamp `json:"stamps"`
	// Audits are the verdicts of audits that were made of the run as it is now.
	Audits []Verdict `json:"audits"`
	// Provenance lists keys and values.
	Provenance [][2]string `json:"-"`
	Tables     []*Table    `json:"-"`
	Plots      []Plot      `json:"-"`
	Warnings   []string    `json:"warnings,omitempty"`
}

// Stamp is a word on a run, with what it means.
type Stamp struct {
	Word  string `json:"word"`
	Means string `json:"means"`
	Loud  bool   `json:"loud"`
}

// Verdict is an audit's verdict; Audit says which, and of what part of a run.
type Verdict struct {
	Audit   string `json:"audit"`
	Verdict string `json:"verdict"`
	Why     string `json:"why"`
}

// Passed reports whether the audit was made and passed.
func (v Verdict) Passed() bool { return v.Verdict == "pass" }

// Table has columns and lines of cells.
type Table struct {
	Title, Note string
	Columns     []string
	Rows        [][]Cell
}

// Cell is text or a number.
type Cell struct {
	Text   string
	Number float64 // that the text is of
	Is     bool    // a number
	Loud   bool    // in red
}

// text is a cell of text.
func text(s string) Cell { return Cell{Text: s} }

// number is a cell with a number to so many digits behind the point.
func number(v float64, digits int) Cell {
	return Cell{Text: strconv.FormatFloat(v, 'f', digits, 64), Number: v, Is: true}
}

// whole is a cell with a whole number.
func whole[T int | int64](v T) Cell { return number(float64(v), 0) }

// row adds a line.
func (t *Table) row(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Plot is a drawing with its title; SVG is markup made by this package.
type Plot struct {
	Title, Note string
	SVG         svg
}

// Auditable lists the directories below a run directory that exacta audit takes: the
// run itself, the points of a sweep, the records of a load experiment's targets.
func Auditable(dir string) ([]string, error) {
	switch {
	case experiments.IsSweep(dir):
		s, err := experiments.OpenSweep(dir)
		if err != nil {
			return nil, err
		}
		var out []string
		for i := range s.Points {
			p := &s.Points[i]
			if s.Finished(p) == nil {
				continue
			}
			below, err := Auditable(filepath.Join(dir, filepath.FromSlash(p.Dir)))
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		}
		return out, nil
	case experiments.HoldsLoad(dir):
		sum, err := experiments.ReadLoadSummary(dir)
		if err != nil {
			return nil, err
		}
		var out []string
		for _, t := range sum.Targets {
			if t.Records != "" {
				out = append(out, filepath.Join(dir, t.Records))
			}
		}
		return out, nil
	}
	return []string{dir}, nil
}

// Gather reads run directories, and result files of other tools. The error names the file that is missing or damaged.
func Gather(dirs []string) (*Report, error) {
	r := &Report{}
	for _, dir := range dirs {
		runs, err := gather(dir)
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, runs...)
	}
	return r, nil
}

func gather(dir string) ([]*Run, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return one(gatherFile(dir))
	}
	switch {
	case experiments.IsSweep(dir):
		return gatherSweep(dir)
	case experiments.HoldsLoad(dir):
		return one(gatherLoad(dir))
	}
	return one(gatherStrategies(dir))
}

func one(r *Run, err error) ([]*Run, error) {
	if err != nil {
		return nil, err
	}
	return []*Run{r}, nil
}

// audits are the verdicts of a directory's audits. of is the part of a run that it
// has, "" for all of it.
func audits(dir, of string) ([]Verdict, error) {
	kept, err := experiments.ReadAudit(dir)
	if err != nil {
		return nil, err
	}
	name := func(audit string) string { return strings.TrimSpace(audit + " " + of) }
	switch {
	case kept == nil:
		return []Verdict{{name("audits"), "not made", fmt.Sprintf("exacta audit %s makes them", dir)}}, nil
	case kept.Stale:
		return []Verdict{{name("audits"), "stale", fmt.Sprintf("the run's files were changed after them; exacta audit %s makes them anew", dir)}}, nil
	}
	var out []Verdict
	made := map[string]bool{}
	for _, r := range kept.Result.Reports() {
		made[r.Audit] = true
		out = append(out, Verdict{name(r.Audit), string(r.Verdict), r.Why})
	}
	for _, audit := range experiments.Audits {
		if !made[audit] {
			out = append(out, Verdict{name(audit), "not made", ""})
		}
	}
	return out, nil
}

// stamps are the ones that every kind of run can have.
func stamps(simulated, lossy, interrupted bool) (out []Stamp) {
	if simulated {
		out = append(out, Stamp{"simulated", "accept lengths of this run were drawn, not decided: its text means nothing, and only speeds can be read from it", true})
	}
	if lossy {
		out = append(out, Stamp{"lossy", "a rule of this run accepts what the target would not have said", true})
	}
	if interrupted {
		out = append(out, Stamp{"interrupted", "the run did not come to its end; figures are of what was finished", true})
	}
	return out
}

// provenance lists a map in order.
func provenance(m map[string]string) (out [][2]string) {
	for _, k := range sortedKeys(m) {
		out = append(out, [2]string{k, m[k]})
	}
	return out
}
