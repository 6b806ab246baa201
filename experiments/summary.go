package experiments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// Point is one combination that an experiment measures.
type Point struct {
	Strategy    int    `json:"strategy"` // index in Config.Strategies; -1 is the plain baseline
	Drafter     string `json:"drafter"`
	K           int    `json:"k"`
	Rule        string `json:"rule"`
	Concurrency int    `json:"concurrency"`
	// Simulation is what the point's acceptance was told to be, such as
	// length=2.6; empty where the rule decided.
	Simulation string `json:"simulation,omitempty"`
	// Length is the policy that gives a step at most K drafts: auto,
	// by_batch, or empty for K always.
	Length string `json:"length,omitempty"`
	// Settings are those that the configuration gives the strategy, such as
	// head=model:mtp-int4, without lists.
	Settings string `json:"settings,omitempty"`
}

// name is the strategy as the table shows it.
func (p Point) name() string {
	if p.Settings == "" {
		return p.Drafter
	}
	return p.Drafter + " " + p.Settings
}

// String names the point as requests do: their id is "POINT.rREPEAT/PROMPT".
func (p Point) String() string {
	if p.Strategy < 0 {
		return fmt.Sprintf("plain.%s.c%d", p.Rule, p.Concurrency)
	}
	return fmt.Sprintf("%d-%s.k%d%s.%s.c%d", p.Strategy, p.Drafter, p.K, p.Length, p.Rule, p.Concurrency)
}

// drafts is k as the table shows it.
func (p Point) drafts() string {
	if p.Length == "" {
		return fmt.Sprint(p.K)
	}
	return fmt.Sprintf("%d %s", p.K, p.Length)
}

// PointResult is a line of the table. Speeds are medians over the rounds;
// acceptance comes from the records of all rounds.
type PointResult struct {
	Point
	Tokens int `json:"tokens"` // emitted, over all rounds
	// TokS is emitted tokens per second of the whole run, prompts included;
	// RatioToPlain compares it with the plain point of the same concurrency
	// and round.
	TokS         float64 `json:"tok_s"`
	RatioToPlain float64 `json:"ratio_to_plain"`
	// Seconds are the wall times that TokS is of, by round.
	Seconds []float64 `json:"seconds"`
	// DecodeTokS and DecodeRatio are the same over steps without prefill.
	DecodeTokS  float64 `json:"decode_tok_s"`
	DecodeRatio float64 `json:"decode_ratio"`
	// AcceptLength is the mean over verification steps of accepted + 1: the
	// forced one where simulated, and then RealAcceptLength is what the rule
	// itself decided in the same steps.
	AcceptLength     float64  `json:"accept_length"`
	RealAcceptLength *float64 `json:"real_accept_length,omitempty"`
	// AcceptanceByPosition[i] is the share of steps that executed at least
	// i+1 drafts in which the first i+1 were accepted.
	AcceptanceByPosition []float64 `json:"acceptance_by_position"`
	// Repeated4Grams is the share of 4-grams that had occurred before in the
	// same output; FreshAcceptLength and FreshRatio are accept length and
	// decode ratio over the steps that repeat none (acceptance.Fresh). The
	// ratio is given for one sequence in flight.
	Repeated4Grams    float64  `json:"repeated_4grams"`
	FreshAcceptLength float64  `json:"fresh_accept_length"`
	FreshRatio        *float64 `json:"fresh_ratio"`
	// DraftShare is the drafters' share of the step time.
	DraftShare float64 `json:"draft_share"`
	// Exact says that every token and the hash of every committed logits row
	// equals the plain run of one sequence; null where that is not the
	// rule's promise (sampling with rejection), and in a run with simulated
	// points or lossy rules, whose other points are only ever told to be false.
	Exact     *bool  `json:"exact"`
	FirstDiff string `json:"first_difference,omitempty"`
	// Lossy says that the rule accepts drafts that the target would not have
	// said: the output is not the target's.
	Lossy       bool    `json:"lossy"`
	Simulated   bool    `json:"simulated"`
	StepMs      float64 `json:"step_ms"` // mean time of a decode step
	Preemptions int     `json:"preemptions"`
	// Classes are the same by class of prompt, where there are several and
	// one sequence runs at a time.
	Classes []ClassResult `json:"classes,omitempty"`
}

// ClassResult is the part of a line over the prompts of one class. Its time is
// that of the engine's steps, prompts included.
type ClassResult struct {
	Class                string    `json:"class"`
	Tokens               int       `json:"tokens"`
	TokS                 float64   `json:"tok_s"`
	RatioToPlain         float64   `json:"ratio_to_plain"`
	AcceptLength         float64   `json:"accept_length"`
	AcceptanceByPosition []float64 `json:"acceptance_by_position"`
	DraftShare           float64   `json:"draft_share"`
}

// Summary is what a run found: summary.json.
type Summary struct {
	Name        string            `json:"name"`
	Dir         string            `json:"dir"`
	Provenance  map[string]string `json:"provenance"`
	Prompts     int               `json:"prompts"`
	Interrupted bool              `json:"interrupted"`
	Simulated   bool              `json:"simulated"` // some point is: nothing in the run is called exact
	Lossy       bool              `json:"lossy"`     // some rule is: likewise
	Runs        []PointResult     `json:"runs"`
	// Warnings are what drafters reported and the run survived, each once.
	Warnings []string `json:"warnings,omitempty"`
}

// AllExact reports whether no point differs from plain decoding.
func (s *Summary) AllExact() bool {
	for _, r := range s.Runs {
		if r.Exact != nil && !*r.Exact {
			return false
		}
	}
	return true
}

// write stores summary.json.
func (s *Summary) write(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "summary.json"), append(text, '\n'), 0o644)
}

// Table prints the results as text. The last column says whether the output is
// plain decoding's; in a run with simulated points, of which nothing of the kind
// may be read, it has the rule's own accept length instead, and in one with lossy
// rules which outputs are lossy or wrong.
func (s *Summary) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	last := "exact"
	switch {
	case s.Simulated:
		last = "real accept length"
	case s.Lossy:
		last = "output"
	}
	fmt.Fprintln(w, "strategy\tk\trule\tin flight\ttok/s\tx plain\tdecode x plain\tfresh x plain\taccept length\tfresh\tacceptance by position\tdraft share\t"+last)
	for _, r := range s.Runs {
		name := r.name()
		if r.Simulated {
			name = strings.TrimSpace(name + " (simulated) " + r.Simulation)
		}
		fresh := "-"
		if r.FreshRatio != nil {
			fresh = fmt.Sprintf("%.2f", *r.FreshRatio)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.0f\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%s\t%.0f%%\t%s\n",
			name, r.drafts(), r.ruleLabel(), r.Concurrency, r.TokS, r.RatioToPlain, r.DecodeRatio, fresh, r.AcceptLength, r.FreshAcceptLength, positions(r.AcceptanceByPosition), 100*r.DraftShare, s.lastColumn(r))
	}
	if err := errors.Join(w.Flush(), s.classTable(out)); err != nil {
		return err
	}
	if len(s.Runs) > 0 {
		fmt.Fprintf(out, "\nfresh: over steps that repeat no 4-gram of their output; %.0f%% of the plain output's 4-grams are repeats\n", 100*s.Runs[0].Repeated4Grams)
	}
	if s.Simulated {
		fmt.Fprintln(out, "simulated: accept lengths marked so were drawn, not decided; speeds are all that this run shows")
	}
	if s.Lossy {
		fmt.Fprintln(out, "lossy: rules marked so accept drafts that the target would not have said; their output is not the target's, and nothing in this run is compared for more than speed")
	}
	for _, r := range s.Runs {
		if r.FirstDiff != "" {
			fmt.Fprintf(out, "%s: %s\n", r.Point, r.FirstDiff)
		}
	}
	return nil
}

// ruleLabel is the rule as tables show it.
func (r *PointResult) ruleLabel() string {
	if r.Lossy {
		return r.Rule + " (lossy)"
	}
	return r.Rule
}

// lastColumn is a line's verdict or, in a run with simulated points, the accept
// length of the rule itself.
func (s *Summary) lastColumn(r PointResult) string {
	switch {
	case s.Lossy && !s.Simulated:
		switch {
		case r.Lossy:
			return "LOSSY"
		case r.Exact != nil && !*r.Exact:
			return "NOT PLAIN'S"
		}
		return "n/a"
	case !s.Simulated && (r.Exact == nil || r.Simulated):
		return "n/a"
	case !s.Simulated:
		return map[bool]string{true: "yes", false: "NO"}[*r.Exact]
	case r.RealAcceptLength != nil:
		return fmt.Sprintf("%.2f", *r.RealAcceptLength)
	}
	return fmt.Sprintf("%.2f", r.AcceptLength)
}

// positions prints acceptance by position.
func positions(rates []float64) string {
	by := make([]string, len(rates))
	for i, a := range rates {
		by[i] = fmt.Sprintf("%.2f", a)
	}
	return strings.Join(by, " ")
}

// classTable prints the lines by class of prompt, if there are any.
func (s *Summary) classTable(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "\nprompts\tstrategy\tk\trule\ttok/s\tx plain\taccept length\tacceptance by position\tdraft share\n"
	for _, class := range s.classNames() {
		for _, r := range s.Runs {
			for _, c := range r.Classes {
				if c.Class != class {
					continue
				}
				fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%.0f\t%.2f\t%.2f\t%s\t%.0f%%\n", head, class, r.name(), r.drafts(), r.ruleLabel(),
					c.TokS, c.RatioToPlain, c.AcceptLength, positions(c.AcceptanceByPosition), 100*c.DraftShare)
				head = ""
			}
		}
	}
	return w.Flush()
}

// classNames lists the classes that have lines.
func (s *Summary) classNames() (names []string) {
	for _, r := range s.Runs {
		for _, c := range r.Classes {
			if !slices.Contains(names, c.Class) {
				names = append(names, c.Class)
			}
		}
	}
	return names
}
