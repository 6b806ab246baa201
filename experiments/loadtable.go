package experiments

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"exacta.dev/exacta/experiments/load"
)

// LoadTable writes the tables of a load experiment: the thirteen metrics by point and
// target, where the time of engines with records went, and comparisons. What must be
// known before the figures are read stands in front.
func LoadTable(w io.Writer, s *load.Summary) error {
	for _, line := range loadStamps(s) {
		fmt.Fprintln(w, line)
	}
	loadLines(w, s)
	if slices.ContainsFunc(s.Lines, func(l load.Line) bool { return l.Pooled.SessionsFinished != l.Pooled.Finished }) {
		loadSessions(w, s)
	}
	loadEngines(w, s)
	for _, t := range s.Targets {
		for _, tried := range t.Tuned {
			fmt.Fprintf(w, "\ntuned %s %v: %s", t.Name, tried.Settings, triedText(&tried))
		}
	}
	loadComparisons(w, s)
	_, err := fmt.Fprintln(w)
	return err
}

func triedText(t *load.Tried) string {
	if t.Error != "" {
		return "failed: " + t.Error
	}
	text := fmt.Sprintf("%.0f tok/s, %.1f requests decoding, KV bytes ", t.OutTokS, t.Resident)
	if t.KVBytes < 0 {
		text += "not told"
	} else {
		text += fmt.Sprint(t.KVBytes)
	}
	if t.Chosen {
		text += "; chosen"
	}
	return text
}

// loadStamps are what figures may not be read without.
func loadStamps(s *load.Summary) (out []string) {
	if s.Simulated {
		out = append(out, "SIMULATED: accept lengths were drawn; only speeds can be read")
	}
	if s.Lossy {
		out = append(out, "LOSSY: a rule accepts what the target would not have said")
	}
	if s.Interrupted {
		out = append(out, "interrupted: some cells are missing")
	}
	for _, t := range s.Targets {
		if t.Fake {
			out = append(out, fmt.Sprintf("FAKE: %s generates nothing; it only shows that the experiment runs", t.Name))
		}
		if t.Untuned && !t.Fake {
			out = append(out, fmt.Sprintf("untuned: %s runs as it was given", t.Name))
		}
	}
	for _, c := range s.Cells {
		if c.Generator.Lagging {
			out = append(out, fmt.Sprintf("lagging: %s: %s", c.Name(), c.Generator.Why))
		}
		if !c.Window.Steady {
			out = append(out, fmt.Sprintf("not steady: %s: %s", c.Name(), c.Window.Why))
		}
		if c.FirstErr != "" {
			out = append(out, fmt.Sprintf("failed: %s: %d requests; the first: %s", c.Name(), c.Whole.Failed, c.FirstErr))
		}
	}
	return out
}

func tabs(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func loadLines(w io.Writer, s *load.Summary) {
	t := tabs(w)
	fmt.Fprint(t, "point\ttarget\tfinished\tout tok/s\t±")
	for _, m := range []string{"ttft", "tpot", "e2e"} {
		fmt.Fprintf(t, "\t%s mean\tp50\tp90\tp99", m)
	}
	fmt.Fprintln(t, "\tin flight\tdecoding")
	metrics := load.Metrics()[1:load.Thirteen]
	for _, l := range s.Lines {
		f := &l.Pooled
		half := "-"
		if i := l.Spread["out_tok_s"]; i.Repeats > 1 {
			half = fmt.Sprintf("%.0f", i.High-i.Mean)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\t%s", l.Point, l.Target, f.Finished, f.OutTokS, half)
		for _, m := range metrics {
			fmt.Fprintf(t, "\t%.4g", m.Of(f))
		}
		fmt.Fprintf(t, "\t%.1f\t%.1f\n", f.InFlight, f.Decoding)
	}
	_ = t.Flush() // errors of w show at its end
	fmt.Fprintln(w, "times in ms; the window's requests of all repeats together; ± is half the 95 % interval over repeats")
}

// loadSessions tells of workflows of several requests.
func loadSessions(w io.Writer, s *load.Summary) {
	t := tabs(w)
	fmt.Fprintln(t, "\npoint\ttarget\tsessions started\tfinished\trequests sent\tfinished\ttok/s of a request\tinteractivity p50\tp90\te2e p50\tp90\tttft p90\tcache hits")
	for _, l := range s.Lines {
		f := &l.Pooled
		hits := "-"
		if f.CacheHit >= 0 {
			hits = fmt.Sprintf("%.0f%%", 100*f.CacheHit)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.4g\t%s\n", l.Point, l.Target, f.SessionsStarted, f.SessionsFinished, f.Admitted, f.Finished,
			f.ReqTokS.Mean, f.Interactivity[0], f.Interactivity[1], f.E2EInteractivity[0], f.E2EInteractivity[1], f.TTFT.P90, hits)
	}
	_ = t.Flush()
}

// loadEngines tells where the time of engines with records went.
func loadEngines(w io.Writer, s *load.Summary) {
	if !slices.ContainsFunc(s.Cells, func(c load.Cell) bool { return c.Engine != nil }) {
		return
	}
	t := tabs(w)
	fmt.Fprintln(t, "\ncell\taccept length\tsteps\tprefill\tdrafts\trejected rows\thost\tidle\tprompt tokens between decode steps")
	for _, c := range s.Cells {
		if e := c.Engine; e != nil {
			fmt.Fprintf(t, "%s\t%.2f\t%d\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f%%\t%.1f\n", c.Name(), e.AcceptLength, e.Steps,
				100*e.PrefillShare, 100*e.DraftShare, 100*e.RejectedShare, 100*e.HostShare, 100*e.IdleShare, e.PromptTokensBetween)
		}
	}
	_ = t.Flush()
}

// loadComparisons writes wins, ties and losses, and the thirteen ratios.
func loadComparisons(w io.Writer, s *load.Summary) {
	for _, c := range s.Comparisons {
		fmt.Fprintf(w, "\n%s against %s at %s: %d wins, %d ties, %d losses of %d metrics\n", c.Target, c.Baseline, c.Point, c.Wins, c.Ties, c.Losses, len(c.Metrics))
		for _, u := range c.Unfair {
			fmt.Fprintln(w, "UNFAIR: "+u)
		}
		if len(c.Unknown) > 0 {
			fmt.Fprintln(w, "not checked: "+strings.Join(c.Unknown, "; "))
		}
		fmt.Fprintf(w, "decoded tokens a second x %.3f = speed of a request x %.3f times requests decoding x %.3f\n", c.SpeedUp, c.RequestSpeed, c.Decoding)
		t := tabs(w)
		fmt.Fprintln(t, "metric\tvalue\tbaseline\tratio\tlow\thigh\t")
		for _, v := range c.Metrics[:load.Thirteen] {
			low, high := "-", "-"
			if v.Bounded {
				low, high = fmt.Sprintf("%.3f", v.Low), fmt.Sprintf("%.3f", v.High)
			}
			fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%.3f\t%s\t%s\t%s\n", v.Metric, v.Value, v.Baseline, v.Ratio, low, high, v.Outcome)
		}
		_ = t.Flush()
	}
}
