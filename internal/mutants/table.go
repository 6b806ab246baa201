package mutants

import (
	"fmt"
	"slices"
	"strings"
)

// Table counts what became of mutants.
type Table struct {
	Tried, Unbuilt, Equal, Caught int
	Missed                        []Result
	by                            map[string]int
}

// Count counts results.
func Count(results []Result) *Table {
	t := &Table{Tried: len(results), by: map[string]int{}}
	for _, r := range results {
		switch r.Outcome {
		case Unbuilt:
			t.Unbuilt++
		case Equal:
			t.Equal++
		case Caught:
			t.Caught++
			t.by[r.By]++
		case Missed:
			t.Missed = append(t.Missed, r)
		}
	}
	return t
}

// Changing is the number of mutants that change behaviour.
func (t *Table) Changing() int { return t.Caught + len(t.Missed) }

// Holds says whether 95 % of the mutants that change behaviour were caught.
func (t *Table) Holds() bool { return 100*t.Caught >= 95*t.Changing() }

// String prints the table.
func (t *Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d mutants: %d do not compile, %d change nothing, %d of %d that change behaviour are caught\n", t.Tried, t.Unbuilt, t.Equal, t.Caught, t.Changing())
	var names []string
	for name := range t.by {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, "  %4d by %s\n", t.by[name], name)
	}
	return b.String()
}

// Spread picks n mutants at even distances, from the first-th on, the same ones
// each time; all if n is 0.
func Spread(list []Mutant, n, first int) []Mutant {
	if n <= 0 || n >= len(list) {
		return list
	}
	var out []Mutant
	for i := range n {
		out = append(out, list[(first+i*len(list)/n)%len(list)])
	}
	return out
}

const fewerHits = "the prefix cache loses its snapshots: fewer hits, so more is computed, rightly and as recorded"

// reasons are why a mutant that changes behaviour is right not to be caught, by
// file and what stands in the changed line.
var reasons = []struct{ file, text, why string }{
	{
		"engine/sched/commit.go", "if r.Kept == it.Rows",
		fewerHits,
	},
	{
		"engine/sched/commit.go", "c.prefix.Attach(s.path, s.saving)",
		fewerHits,
	},
}

// Reason says why a mutant is not caught, where that is known.
func Reason(m Mutant) string {
	for _, r := range reasons {
		if r.file == m.File && strings.Contains(m.Text, r.text) {
			return r.why
		}
	}
	return "no reason known: a gap of the audits"
}
