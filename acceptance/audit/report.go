package audit

// Outcome is an audit's verdict.
type Outcome string

// Outcomes.
const (
	Pass         Outcome = "pass"
	Fail         Outcome = "fail"
	NotCheckable Outcome = "not checkable"
)

// Report is what an audit found.
type Report struct {
	Audit   string  `json:"audit"` // tokens, counts, work
	Verdict Outcome `json:"verdict"`
	Why     string  `json:"why,omitempty"` // in a sentence; the first finding where there are any
	Run     string  `json:"run"`
	// Checks lists what was looked at, in the order in which it was.
	Checks []Check `json:"checks"`
	// Tests are the statistical ones among the checks.
	Tests []Test `json:"tests,omitempty"`
	// Findings are what was wrong, one per check, the most telling first.
	Findings []Finding `json:"findings"`
	// Figures are the acceptance figures that counts recomputed.
	Figures *Figures `json:"figures,omitempty"`
	// Notes are figures in sentences, which judge nothing.
	Notes []string `json:"notes,omitempty"`
	// Blind says what this audit could not see in this run, and why.
	Blind []string `json:"blind,omitempty"`
}

// Check is one identity or property that was looked at.
type Check struct {
	Name    string `json:"name"`
	Checked int64  `json:"checked"` // how often it applied
	Failed  int64  `json:"failed"`
	Why     string `json:"why,omitempty"` // why it could not be looked at
}

// Finding is evidence: which record, which identity, which numbers.
type Finding struct {
	Check   string `json:"check"`
	Why     string `json:"why"` // one sentence with the numbers
	Request string `json:"request,omitempty"`
	Step    int64  `json:"step"` // of the first record; -1 where it belongs to none
	Times   int64  `json:"times"`
}

// Test is a statistical test: what it looked at, at which level, what it would
// have seen.
type Test struct {
	Name      string  `json:"name"`
	Samples   int64   `json:"samples"`
	Statistic float64 `json:"statistic"`
	P         float64 `json:"p"`
	Alpha     float64 `json:"alpha"`
	// Detects is the smallest effect that the test finds with this many
	// samples, in words with its unit.
	Detects string `json:"detects"`
}
