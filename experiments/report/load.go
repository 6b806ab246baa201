package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/experiments/load"
)

// mostDots bounds the requests of a timeline; of more, every so-manieth is drawn.
const mostDots = 2000

// gatherLoad reads a load experiment.
func gatherLoad(dir string) (*Run, error) {
	sum, err := experiments.ReadLoadSummary(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{
		Dir: dir, Name: sum.Name, Kind: "load", Stamps: append(stamps(sum.Simulated, sum.Lossy, sum.Interrupted), loadStamps(sum)...),
		Provenance: provenance(sum.Provenance), Warnings: sum.Warnings,
	}
	for _, t := range sum.Targets {
		if t.Records == "" {
			r.Audits = append(r.Audits, Verdict{"audits of " + t.Name, "not made", "the target keeps no records; exacta audit --endpoint audits a server from outside"})
			continue
		}
		found, err := audits(filepath.Join(dir, t.Records), "of "+t.Name)
		if err != nil {
			return nil, err
		}
		r.Audits = append(r.Audits, found...)
	}
	r.Tables = append(r.Tables, thirteen(sum), percentiles(sum), rates(sum), targets(sum))
	if len(sum.Comparisons) > 0 {
		r.Tables = append(r.Tables, factors(sum), comparisons(sum))
	}
	if t := tuned(sum); len(t.Rows) > 0 {
		r.Tables = append(r.Tables, t)
	}
	r.Plots = append(r.Plots, frontier(sum))
	for i := range sum.Cells {
		p, err := timeline(dir, &sum.Cells[i])
		if err != nil {
			return nil, err
		}
		r.Plots = append(r.Plots, p)
	}
	return r, nil
}

// loadStamps are those of load experiments alone.
func loadStamps(sum *load.Summary) (out []Stamp) {
	for _, t := range sum.Targets {
		if t.Fake {
			out = append(out, Stamp{"fake target", t.Name + " stands in for a server and generates nothing: none of its figures means anything", true})
		}
		if t.Untuned {
			out = append(out, Stamp{"untuned", t.Name + " runs with its defaults: its best settings were not looked for", true})
		}
	}
	for _, c := range sum.Comparisons {
		if !c.Fair {
			out = append(out, Stamp{"unfair", fmt.Sprintf("%s beside %s at %s: %s", c.Target, c.Baseline, c.Point, strings.Join(c.Unfair, "; ")), true})
		}
	}
	for _, l := range sum.Lines {
		if l.Lagging > 0 {
			out = append(out, Stamp{"lagging", fmt.Sprintf("at %s of %s the load generator did not keep up in %d repeats", l.Point, l.Target, l.Lagging), true})
		}
		if l.Unsteady > 0 {
			out = append(out, Stamp{"unsteady", fmt.Sprintf("at %s of %s no steady state was found in %d repeats", l.Point, l.Target, l.Unsteady), false})
		}
	}
	return out
}

// thirteen is the table of the 13 published metrics, a line for target and point.
func thirteen(sum *load.Summary) *Table {
	t := &Table{Title: "Load", Note: "Over the steady windows of all repeats; times in ms.", Columns: []string{"point", "target"}}
	all := load.Metrics()[:load.Thirteen]
	for _, m := range all {
		t.Columns = append(t.Columns, strings.TrimSpace(m.Name+" "+m.Unit))
	}
	for i := range sum.Lines {
		l := &sum.Lines[i]
		cells := []Cell{text(l.Point), text(l.Target)}
		for _, m := range all {
			cells = append(cells, number(m.Of(&l.Pooled), 2))
		}
		t.row(cells...)
	}
	return t
}

// percentiles is the table of every latency.
func percentiles(sum *load.Summary) *Table {
	t := &Table{Title: "Percentiles", Note: "In ms, of the steady windows; speed of requests in tok/s.", Columns: []string{"point", "target", "figure", "n", "mean", "sd", "min", "p50", "p75", "p90", "p95", "p99", "max"}}
	for i := range sum.Lines {
		l := &sum.Lines[i]
		f := &l.Pooled
		for _, d := range []struct {
			name string
			d    *load.Dist
		}{
			{"ttft", &f.TTFT}, {"ttft_sched", &f.TTFTSched}, {"ttst", &f.TTST}, {"tpot", &f.TPOT}, {"tpot_incl", &f.TPOTIncl},
			{"itl", &f.ITL}, {"icl", &f.ICL}, {"e2e", &f.E2E}, {"tok/s of a request", &f.ReqTokS},
		} {
			if d.d.N == 0 {
				continue
			}
			t.row(text(l.Point), text(l.Target), text(d.name), whole(d.d.N), number(d.d.Mean, 3), number(d.d.SD, 3), number(d.d.Min, 3), number(d.d.P50, 3),
				number(d.d.P75, 3), number(d.d.P90, 3), number(d.d.P95, 3), number(d.d.P99, 3), number(d.d.Max, 3))
		}
	}
	return t
}

// rates is the table of what was admitted, finished and produced, and where the
// engine's time went.
func rates(sum *load.Summary) *Table {
	t := &Table{Title: "Throughput", Columns: []string{
		"point", "target", "seconds", "admitted", "finished", "failed", "workflows finished", "out tok/s", "total tok/s", "requests/s", "goodput requests/s",
		"interactivity p50", "interactivity p90", "decoding", "tok/s of a request decoding", "accept length", "prefill share %", "prompt tokens between steps",
	}}
	for i := range sum.Lines {
		l := &sum.Lines[i]
		f := &l.Pooled
		goodput, accept, prefill, between := text("-"), text("-"), text("-"), text("-")
		if f.Goodput != nil {
			goodput = number(f.Goodput.ReqS, 3)
		}
		if e := l.Engine; e != nil {
			accept, prefill, between = number(e.AcceptLength, 3), number(100*e.PrefillShare, 1), number(e.PromptTokensBetween, 1)
			accept.Loud = e.Simulated
		}
		t.row(text(l.Point), text(l.Target), number(f.Seconds, 1), whole(f.Admitted), whole(f.Finished), whole(f.Failed), whole(f.SessionsFinished),
			number(f.OutTokS, 1), number(f.TotalTokS, 1), number(f.ReqS, 3), goodput, number(f.Interactivity[0], 2), number(f.Interactivity[1], 2),
			number(f.Decoding, 2), number(f.DecodeTokS, 2), accept, prefill, between)
	}
	return t
}

// targets is the table of what is known of targets.
func targets(sum *load.Summary) *Table {
	t := &Table{Title: "Targets", Columns: []string{"target", "kind", "what", "known by", "is"}}
	for _, g := range sum.Targets {
		for _, k := range sortedKeys(g.Claims) {
			t.row(text(g.Name), text(strings.TrimSpace(g.Kind+" "+g.Dialect)), text(k), text(g.Sources[k]), text(g.Claims[k]))
		}
	}
	return t
}

// factors is the table of decomposed speed-ups and of wins.
func factors(sum *load.Summary) *Table {
	t := &Table{Title: "Comparisons", Note: "Speed-up of decoding = speed of a request x requests decoding. Wins are those beyond noise.",
		Columns: []string{"point", "target", "baseline", "speed-up", "speed of a request", "requests decoding", "wins", "ties", "losses", "fair", "not known"}}
	for _, c := range sum.Comparisons {
		fair := text("yes")
		if !c.Fair {
			fair = Cell{Text: "NO: " + strings.Join(c.Unfair, "; "), Loud: true}
		}
		t.row(text(c.Point), text(c.Target), text(c.Baseline), number(c.SpeedUp, 3), number(c.RequestSpeed, 3), number(c.Decoding, 3), whole(c.Wins), whole(c.Ties), whole(c.Losses), fair, text(strings.Join(c.Unknown, "; ")))
	}
	return t
}

// comparisons is the table of all metrics side by side.
func comparisons(sum *load.Summary) *Table {
	t := &Table{Title: "Comparisons by metric", Note: "Low and high are the ratio's interval of 95 %.", Columns: []string{"point", "target", "metric", "value", "baseline", "ratio", "low", "high", "outcome"}}
	for _, c := range sum.Comparisons {
		for _, v := range c.Metrics {
			t.row(text(c.Point), text(c.Target), text(v.Metric), number(v.Value, 3), number(v.Baseline, 3), number(v.Ratio, 3), number(v.Low, 3), number(v.High, 3), text(v.Outcome))
		}
	}
	return t
}

// tuned is the table of settings that were tried.
func tuned(sum *load.Summary) *Table {
	t := &Table{Title: "Tuning", Columns: []string{"target", "settings", "out tok/s", "resident", "KV bytes", "chosen", "error"}}
	for _, g := range sum.Targets {
		for _, s := range g.Tuned {
			var set []string
			for _, k := range sortedKeys(s.Settings) {
				set = append(set, k+"="+s.Settings[k])
			}
			chosen := ""
			if s.Chosen {
				chosen = "yes"
			}
			t.row(text(g.Name), text(strings.Join(set, " ")), number(s.OutTokS, 1), number(s.Resident, 1), whole(s.KVBytes), text(chosen), text(s.Error))
		}
	}
	return t
}

// frontier draws throughput over interactivity: a line through the points of a
// target of which no other is better in both.
func frontier(sum *load.Summary) Plot {
	c := chart{x: "interactivity at p90, tok/s of a user", y: "output tok/s", fromZero: true}
	for _, g := range sum.Targets {
		all := line{name: g.Name, dots: true}
		for i := range sum.Lines {
			l := &sum.Lines[i]
			if l.Target == g.Name && l.Pooled.TPOT.N > 0 {
				all.points = append(all.points, point{l.Pooled.Interactivity[1], l.Pooled.OutTokS, fmt.Sprintf("%s, %s: %s tok/s at %s", l.Target, l.Point, short(l.Pooled.OutTokS), short(l.Pooled.Interactivity[1]))})
			}
		}
		best := line{name: g.Name + ", frontier", points: pareto(all.points)}
		c.lines = append(c.lines, best, all)
	}
	return Plot{Title: "Throughput and interactivity", SVG: c.draw()}
}

// pareto keeps the points of which none is better in both, by x.
func pareto(points []point) (out []point) {
	byX := slices.SortedFunc(slices.Values(points), func(a, b point) int { return cmp.Or(cmp.Compare(b.x, a.x), cmp.Compare(b.y, a.y)) })
	for _, p := range byX {
		if len(out) == 0 || p.y > out[len(out)-1].y {
			out = append(out, p)
		}
	}
	slices.Reverse(out)
	return out
}

// timeline draws the TTFT of each request of a cell at the time of its sending.
func timeline(dir string, c *load.Cell) (Plot, error) {
	rows, err := load.ReadRowsFile(filepath.Join(dir, load.CellsDir, c.Name(), load.RequestsFile))
	if err != nil {
		return Plot{}, err
	}
	const second = 1e9
	p := Plot{Title: "Timeline of " + c.Name(), Note: "Time to the first token of each request, at the time of its sending; the window that counts is shaded."}
	every := (len(rows) + mostDots - 1) / mostDots
	if every > 1 {
		p.Note += fmt.Sprintf(" Of %d requests one in %d is drawn.", len(rows), every)
	}
	counted, other := line{name: "measured", dots: true}, line{name: "warm-up", dots: true}
	for i := 0; i < len(rows); i += max(1, every) {
		r := &rows[i]
		if !r.OK() {
			continue
		}
		q := point{float64(r.Sent) / second, float64(r.First-r.Sent) / 1e6, fmt.Sprintf("%s: %d prompt tokens, first after %s ms, %d tokens in %s s", r.Request, r.Prompt, short(float64(r.First-r.Sent)/1e6), r.Output, short(float64(r.Last-r.Sent)/second))}
		if r.Phase == load.Measured {
			counted.points = append(counted.points, q)
		} else {
			other.points = append(other.points, q)
		}
	}
	ch := chart{x: "seconds since the load began", y: "TTFT, ms", fromZero: true, lines: []line{counted}, bands: []band{{float64(c.Window.From) / second, float64(c.Window.To) / second, "window"}}}
	if len(other.points) > 0 {
		ch.lines = append(ch.lines, other)
	}
	p.SVG = ch.draw()
	return p, nil
}
