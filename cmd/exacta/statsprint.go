package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"exacta.dev/exacta/acceptance"
)

// statsLine is the statistics of a point and round.
type statsLine struct {
	Point string `json:"point"`
	acceptance.Summary
	Positions []acceptance.Position `json:"positions"`
}

func pointLines(g *acceptance.Group, confidence float64) []statsLine {
	lines := []statsLine{}
	for _, name := range g.Order {
		lines = append(lines, statsLine{name, g.By[name].Summary(), g.By[name].Positions(confidence, 1)})
	}
	return lines
}

// groupLine is the acceptance of a group of another kind.
type groupLine struct {
	Point    string `json:"point,omitempty"`
	Class    string `json:"class,omitempty"`
	Prompt   string `json:"prompt,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	acceptance.Acceptance
	Passes    int                   `json:"passes"` // rounds and points that it pools
	Positions []acceptance.Position `json:"positions"`
}

func groupLines(g *acceptance.Group, by string, confidence float64) []groupLine {
	lines := []groupLine{}
	for _, name := range g.Order {
		s := g.By[name]
		l := groupLine{Acceptance: s.Acceptance(), Passes: s.Passes(), Positions: s.Positions(confidence, s.Passes())}
		point, rest, _ := strings.Cut(name, "/")
		switch by {
		case byStrategy:
			l.Strategy = name
		case byClass:
			l.Point, l.Class = point, rest
		case byPrompt:
			l.Point, l.Prompt = point, rest
		}
		lines = append(lines, l)
	}
	return lines
}

// depthLine is the acceptance of one position of the draft.
type depthLine struct {
	Point      string `json:"point"`
	Lossy      bool   `json:"lossy"`
	Simulated  bool   `json:"simulated"`
	Simulation string `json:"simulation"`
	Passes     int    `json:"passes"` // rounds that it pools
	acceptance.Position
}

func depthLines(g *acceptance.Group, confidence float64) []depthLine {
	lines := []depthLine{}
	for _, name := range g.Order {
		s := g.By[name]
		for _, p := range s.Positions(confidence, s.Passes()) {
			lines = append(lines, depthLine{name, s.Lossy, s.Simulated, s.Simulation, s.Passes(), p})
		}
	}
	return lines
}

// stamp says whether acceptance was by a lossy rule, and whether it was simulated,
// and as what: the last two cells of a line.
func stamp(lossy, simulated bool, simulation string) string {
	text := "no\t"
	if lossy {
		text = "LOSSY\t"
	}
	switch {
	case !simulated:
		return text + "no"
	case simulation == "":
		return text + "SIMULATED"
	}
	return text + "SIMULATED " + simulation
}

// shares prints shares with their intervals.
func shares(positions []acceptance.Position, of func(acceptance.Position) acceptance.Share) string {
	if len(positions) == 0 {
		return "-"
	}
	var out []string
	for _, p := range positions {
		s := of(p)
		out = append(out, fmt.Sprintf("%.2f(%.2f-%.2f)", s.Rate, s.Low, s.High))
	}
	return strings.Join(out, " ")
}

func unconditional(p acceptance.Position) acceptance.Share { return p.Unconditional }
func conditional(p acceptance.Position) acceptance.Share   { return p.Conditional }

func (f *statsFlags) percent() string { return fmt.Sprintf("%.6g %%", 100*f.confidence) }

func table(out io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(out, 0, 0, 2, ' ', 0) }

const (
	acceptanceHead = "verifications\tproposed\taccepted\temitted\taccept length\tby request\ttoken-weighted\tper token\tby position\tlossy\tsimulated"
	meansNote      = "accept length: over verifications; by request, token-weighted: over requests; per token: over the tokens decided.\nby position: all drafts up to there accepted, with the Wilson interval of %s.\n"
)

func acceptanceRow(a *acceptance.Acceptance, p []acceptance.Position) string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%s\t%s", a.Verifications, a.Proposed, a.Accepted, a.Emitted,
		a.AcceptLength, a.AcceptLengthMacro, a.AcceptLengthTokenWeighted, a.AcceptLengthPerToken, shares(p, unconditional), stamp(a.Lossy, a.Simulated, a.Simulation))
}

func printPoints(out io.Writer, f *statsFlags, lines []statsLine, speedups []acceptance.Speedup) error {
	w := table(out)
	fmt.Fprintln(w, "point\tdecode step ms\tdraft share\t"+acceptanceHead)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%.3f\t%.0f%%\t%s\n", l.Point, l.DecodeStepMs, 100*l.DraftShare, acceptanceRow(&l.Acceptance, l.Positions))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, meansNote, f.percent())
	if len(speedups) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	fmt.Fprintln(w, "point\taccept length\tplain step ms\tdraft ms\tverify ms\twidth\texpected\tmeasured\toverhead\toccupancy\tcut\tunexplained\tlossy\tsimulated")
	for _, s := range speedups {
		if s.Why != "" {
			fmt.Fprintf(w, "%s\tno speed-up: %s\n", s.Point, s.Why)
			continue
		}
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.2fx\t%.2fx\t%.3f\t%.3f\t%.3f\t%+.1f%%\t%s\n", s.Point, s.AcceptLength, s.PlainStepMs, s.DraftStepMs,
			s.VerifyStepMs, s.Width, s.Expected, s.Measured, s.Overhead, s.Occupancy, s.Cut, 100*s.Unexplained, stamp(s.Lossy, s.Simulated, s.Simulation))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "expected = accept length x plain step / (draft + verify); measured: tok/s of steps without prefill over plain's.\nmeasured = expected x overhead x occupancy x cut x (1 + unexplained).")
	return err
}

func printGroups(out io.Writer, f *statsFlags, lines []groupLine) error {
	w := table(out)
	head := f.by
	if f.by != byStrategy {
		head = "point\t" + head
	}
	fmt.Fprintln(w, head+"\t"+acceptanceHead)
	for _, l := range lines {
		name := l.Strategy
		if f.by != byStrategy {
			name = l.Point + "\t" + l.Class + l.Prompt
		}
		fmt.Fprintf(w, "%s\t%s\n", name, acceptanceRow(&l.Acceptance, l.Positions))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, meansNote, f.percent())
	return err
}

func printDepths(out io.Writer, f *statsFlags, lines []depthLine) error {
	w := table(out)
	fmt.Fprintf(w, "point\tposition\tverifications\tall accepted\t%s\treached\taccepted there\t%s\tlossy\tsimulated\n", f.percent(), f.percent())
	for _, l := range lines {
		u, c := l.Unconditional, l.Conditional
		fmt.Fprintf(w, "%s\t%d\t%d\t%.4f\t%.4f-%.4f\t%d\t%.4f\t%.4f-%.4f\t%s\n", l.Point, l.Position.Position, u.Of, u.Rate, u.Low, u.High,
			c.Of, c.Rate, c.Low, c.High, stamp(l.Lossy, l.Simulated, l.Simulation))
	}
	return w.Flush()
}

func printWindows(out io.Writer, f *statsFlags, lines []acceptance.Window) error {
	w := table(out)
	fmt.Fprintf(w, "point\t%s\tverifications\tproposed\taccepted\temitted\taccept length\tby position (%s)\tconditional\tlossy\tsimulated\n", f.over, f.percent())
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d-%d\t%d\t%d\t%d\t%d\t%.3f\t%s\t%s\t%s\n", l.Point, l.From, l.To-1, l.Verifications, l.Proposed, l.Accepted, l.Emitted,
			l.AcceptLength, shares(l.Positions, unconditional), shares(l.Positions, conditional), stamp(l.Lossy, l.Simulated, l.Simulation))
	}
	return w.Flush()
}
