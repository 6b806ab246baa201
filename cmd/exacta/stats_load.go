package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/experiments"
)

// statsLoad tells what the engine was busy with.
func statsLoad(out io.Writer, dir string, f *statsFlags, asJSON bool) error {
	l := acceptance.NewLoad()
	meta, err := scan(dir, f.points, l.Add)
	if err != nil {
		return err
	}
	times, err := experiments.ServedTimes(dir)
	if err != nil {
		return err
	}
	if asJSON {
		v := f.head(meta)
		v["load"], v["requests"] = l.Figures(), times
		return printJSON(out, v)
	}
	return printLoad(out, l.Figures(), times)
}

func printLoad(out io.Writer, f acceptance.LoadFigures, times []experiments.RequestTimes) error {
	fmt.Fprintf(out, "%d requests in %d steps, %.2f s busy: %d tokens, %.1f tok/s = %.2f decoding x %.2f tok/s each\n", f.Requests, f.Steps, f.Seconds, f.Emitted, f.Rate, f.Decoding.Mean, f.PerRequest)
	fmt.Fprintf(out, "prefill   %d tokens: %.1f %% of all rows; steps with any took %.1f %% of the time\n", f.PrefillTokens, 100*f.RowShare, 100*f.TimeShare)
	fmt.Fprintf(out, "preempted %d times; %d tokens computed again, %.2f %% of all rows\n\n", f.Preemptions, f.Recomputed, 100*f.RecomputedShare)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmean\tmedian\t99 %\tmost")
	line := func(name string, s acceptance.Spread) {
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%.0f\t%.0f\n", name, s.Mean, s.Median, s.P99, s.Most)
	}
	line("requests decoding", f.Decoding)
	line("requests in prefill", f.Preparing)
	line("tokens prefilled between steps that decode", f.Between)
	var queue, first, total []float64
	for _, t := range times {
		if t.TTFT > 0 {
			queue, first, total = append(queue, t.Queue), append(first, t.TTFT), append(total, t.Total)
		}
	}
	if len(first) > 0 {
		line("ms until a step took a request up", acceptance.SpreadOf(queue))
		line("ms until its first token", acceptance.SpreadOf(first))
		line("ms until its end", acceptance.SpreadOf(total))
	}
	if err := w.Flush(); err != nil || len(first) == 0 {
		return err
	}
	fmt.Fprintf(out, "\nms until the first token, of each request, the soonest first:")
	slices.Sort(first)
	for _, t := range first {
		fmt.Fprintf(out, " %.0f", t)
	}
	_, err := fmt.Fprintln(out)
	return err
}
