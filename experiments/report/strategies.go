package report

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/experiments"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// windowTokens is the width of the windows of the plot over the output, in tokens,
// unless outputs are too short or too long for it.
const windowTokens = 16

// gatherStrategies reads a run of strategies.
func gatherStrategies(dir string) (*Run, error) {
	sum, err := experiments.ReadSummary(dir)
	if err != nil {
		return nil, err
	}
	r := &Run{
		Dir: dir, Name: sum.Name, Kind: "strategies", Stamps: stamps(sum.Simulated, sum.Lossy, sum.Interrupted),
		Provenance: provenance(sum.Provenance), Warnings: sum.Warnings,
	}
	if !sum.AllExact() {
		r.Stamps = append(r.Stamps, Stamp{"not exact", "some output is not that of plain decoding", true})
	}
	if r.Audits, err = audits(dir, ""); err != nil {
		return nil, err
	}
	f, err := readRecords(dir)
	if err != nil {
		return nil, err
	}
	r.Tables = append(r.Tables, speeds(sum), f.acceptance(), f.speedups())
	if t := classes(sum); len(t.Rows) > 0 {
		r.Tables = append(r.Tables, t)
	}
	r.Plots = append(r.Plots, speedBars(sum), f.byPosition(), f.heat())
	over, err := f.overOutput()
	if err != nil {
		return nil, err
	}
	r.Plots = append(r.Plots, over)
	return r, nil
}

// speeds is the table of exacta run.
func speeds(sum *experiments.Summary) *Table {
	t := &Table{Title: "Speeds", Note: "Medians over rounds; ratios are to plain decoding in the same round.", Columns: []string{
		"point", "tok/s", "x plain", "decode x plain", "accept length", "draft share %", "step ms", "preemptions", "exact",
	}}
	for i := range sum.Runs {
		p := &sum.Runs[i]
		exact := Cell{Text: "n/a"}
		switch {
		case p.Simulated:
			exact = Cell{Text: "simulated", Loud: true}
		case p.Lossy:
			exact = Cell{Text: "lossy", Loud: true}
		case p.Exact != nil && *p.Exact:
			exact = text("yes")
		case p.Exact != nil:
			exact = Cell{Text: "NO", Loud: true}
		}
		t.row(text(p.String()), number(p.TokS, 1), number(p.RatioToPlain, 3), number(p.DecodeRatio, 3), number(p.AcceptLength, 3),
			number(100*p.DraftShare, 1), number(p.StepMs, 3), whole(p.Preemptions), exact)
	}
	return t
}

// classes is the table by class of prompt.
func classes(sum *experiments.Summary) *Table {
	t := &Table{Title: "By class of prompt", Columns: []string{"class", "point", "tokens", "tok/s", "x plain", "accept length", "draft share %"}}
	for i := range sum.Runs {
		for _, c := range sum.Runs[i].Classes {
			t.row(text(c.Class), text(sum.Runs[i].String()), whole(c.Tokens), number(c.TokS, 1), number(c.RatioToPlain, 3), number(c.AcceptLength, 3), number(100*c.DraftShare, 1))
		}
	}
	return t
}

// fromRecords are the figures of a run's records, points with their rounds pooled.
type fromRecords struct {
	points  *acceptance.Group
	windows *acceptance.Windows
}

// readRecords reads the records of a run twice: the second time it is known how long
// outputs are.
func readRecords(dir string) (*fromRecords, error) {
	reader, err := acceptance.Open(dir)
	if err != nil {
		return nil, err
	}
	f := &fromRecords{points: acceptance.NewGroup(func(r *engine.Record) string {
		if acceptance.ParsePoint(acceptance.ByPoint(r)).Reference {
			return ""
		}
		return acceptance.ByPooledPoint(r)
	})}
	longest, lengths := int64(0), map[string]int64{}
	for r, err := range reader.All() {
		if err != nil {
			return nil, err
		}
		f.points.Add(r)
		lengths[r.Request] += int64(r.Emitted())
		longest = max(longest, lengths[r.Request])
	}
	width := int64(max(1, min(windowTokens, longest/8)))
	width = max(width, longest/200+1)
	if f.windows, err = acceptance.NewWindows(acceptance.OverPosition, width); err != nil {
		return nil, err
	}
	for r, err := range reader.All() {
		if err == nil {
			err = f.windows.Add(r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Clean(dir), err)
		}
	}
	return f, nil
}

const confidence = 0.95

// acceptance is the table of acceptance by position, with Wilson intervals.
func (f *fromRecords) acceptance() *Table {
	t := &Table{Title: "Acceptance", Note: "From the records. Rate: of the verifications with that many drafts, those in which all drafts up to that one were accepted; low and high are its Wilson interval of 95 %.",
		Columns: []string{"point", "position", "verifications", "rate", "low", "high", "conditional"}}
	for _, name := range f.points.Order {
		s := f.points.By[name]
		for i, p := range s.Positions(confidence, s.Passes()) {
			t.row(text(name), whole(i+1), whole(p.Unconditional.Of), number(p.Unconditional.Rate, 4), number(p.Unconditional.Low, 4), number(p.Unconditional.High, 4), number(p.Conditional.Rate, 4))
		}
	}
	return t
}

// speedups is the table of measured and expected speed-ups.
func (f *fromRecords) speedups() *Table {
	t := &Table{Title: "Speed-up", Note: "Of decoding steps. Expected: accept length x plain step / (draft + verification), from measured costs.",
		Columns: []string{"point", "accept length", "width", "plain ms", "draft ms", "verify ms", "expected", "measured", "why not"}}
	for _, s := range acceptance.Speedups(f.points) {
		t.row(text(s.Point), number(s.AcceptLength, 3), number(s.Width, 2), number(s.PlainStepMs, 3), number(s.DraftStepMs, 3), number(s.VerifyStepMs, 3), number(s.Expected, 3), number(s.Measured, 3), text(s.Why))
	}
	return t
}

// speedBars draws the ratios to plain decoding.
func speedBars(sum *experiments.Summary) Plot {
	var bars []bar
	for i := range sum.Runs {
		p := &sum.Runs[i]
		bars = append(bars, bar{name: p.String(), value: p.RatioToPlain, loud: p.Simulated})
	}
	return Plot{Title: "Speed over plain decoding", Note: "Tokens per second, prompts included; the line is plain decoding. Simulated points are red.", SVG: drawBars(bars, 1)}
}

// drafting lists the points that have drafts.
func (f *fromRecords) drafting() (out []string) {
	for _, name := range f.points.Order {
		if len(f.points.By[name].Reached) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// byPosition draws acceptance over the position in the draft.
func (f *fromRecords) byPosition() Plot {
	c := chart{x: "position in the draft", y: "accepted up to it", low: 0, high: 1, wholeX: true}
	for _, name := range f.drafting() {
		l := line{name: name}
		for i, rate := range f.points.By[name].Acceptance().AcceptanceByPosition {
			l.points = append(l.points, point{x: float64(i + 1), y: rate})
		}
		c.lines = append(c.lines, l)
	}
	return Plot{Title: "Acceptance by position", SVG: c.draw()}
}

// heat draws the same as a map.
func (f *fromRecords) heat() Plot {
	m := heatMap{x: "position in the draft"}
	for _, name := range f.drafting() {
		m.rows = append(m.rows, heatRow{name, f.points.By[name].Acceptance().Conditional})
	}
	return Plot{Title: "Conditional acceptance", Note: "Of the verifications in which all drafts before it were accepted, those that accepted the draft at a position.", SVG: m.draw()}
}

// overOutput draws the accept length along the output.
func (f *fromRecords) overOutput() (Plot, error) {
	lines, err := f.windows.Lines(confidence)
	if err != nil {
		return Plot{}, err
	}
	c := chart{x: "position in the output, tokens", y: "accept length", low: 1, high: 1}
	for _, name := range f.drafting() {
		l := line{name: name}
		for _, w := range lines {
			if w.Point == name {
				l.points = append(l.points, point{x: float64(w.From+w.To) / 2, y: w.AcceptLength})
			}
		}
		c.lines = append(c.lines, l)
	}
	return Plot{Title: "Accept length along the output", SVG: c.draw()}, nil
}
