package report

import (
	"fmt"
	"os"

	"exacta.dev/exacta/acceptance/outside"
)

// gatherFile reads a result file of another tool, with its audit.
func gatherFile(name string) (*Run, error) {
	res, err := outside.AuditFile(name, outside.Options{})
	if err != nil {
		return nil, err
	}
	r := &Run{Dir: name, Name: name, Kind: string(res.Format), Stamps: []Stamp{{"imported", "figures are those of the file; exacta did not measure them", true}}}
	for _, a := range res.Reports() {
		r.Audits = append(r.Audits, Verdict{a.Audit, string(a.Verdict), a.Why})
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("result file: %w", err)
	}
	defer f.Close()
	switch res.Format {
	case outside.VLLMBench:
		rows, err := outside.ReadBench(name, f)
		if err != nil {
			return nil, err
		}
		r.Tables = []*Table{benchTable(rows)}
	case outside.SpecBench:
		answers, err := outside.ReadAnswers(name, f)
		if err != nil {
			return nil, err
		}
		r.Tables = []*Table{specTable(answers)}
	}
	t := &Table{Title: "Figures of the audit", Columns: []string{"figure", "value"}}
	for _, k := range sortedKeys(res.Figures) {
		t.row(text(k), number(res.Figures[k], 4))
	}
	r.Tables = append(r.Tables, t)
	return r, nil
}

// benchTable is a line for each result of vllm bench serve.
func benchTable(rows []outside.BenchResult) *Table {
	t := &Table{Title: "Load", Note: "Times in ms; ITL is the gap between chunks, not tokens.", Columns: []string{"label", "model", "completed", "failed", "seconds", "out tok/s", "requests/s"}}
	latencies := []struct {
		name string
		of   func(*outside.BenchResult) outside.BenchMetric
	}{
		{"ttft", func(b *outside.BenchResult) outside.BenchMetric { return b.TTFT }}, {"tpot", func(b *outside.BenchResult) outside.BenchMetric { return b.TPOT }},
		{"itl", func(b *outside.BenchResult) outside.BenchMetric { return b.ITL }}, {"e2el", func(b *outside.BenchResult) outside.BenchMetric { return b.E2EL }},
	}
	for _, l := range latencies {
		t.Columns = append(t.Columns, l.name+" mean", l.name+" median", l.name+" p90", l.name+" p99")
	}
	for i := range rows {
		b := &rows[i]
		cells := []Cell{text(b.Label), text(b.ModelID), whole(b.Completed), whole(b.Failed), number(b.Duration, 2), number(b.OutputRate, 1), number(b.RequestRate, 3)}
		for _, l := range latencies {
			for _, statistic := range []string{"mean", "median", "p90", "p99"} {
				cell := text("-")
				if v, ok := l.of(b)[statistic]; ok {
					cell = number(v, 3)
				}
				cells = append(cells, cell)
			}
		}
		t.row(cells...)
	}
	return t
}

// specTable is a line for each category of Spec-Bench's answers: tokens a second as
// speed.py has them, the mean over questions, and the mean accept length over steps.
func specTable(answers []outside.SpecAnswer) *Table {
	type sums struct{ speeds, questions, accepts, steps float64 }
	by := map[string]*sums{}
	for _, a := range answers {
		for _, name := range []string{a.Category, "overall"} {
			if by[name] == nil {
				by[name] = &sums{}
			}
			s := by[name]
			for _, c := range a.Choices[:min(1, len(a.Choices))] { // as speed.py does
				tokens, seconds := 0.0, 0.0
				for _, n := range c.Tokens {
					tokens += float64(n)
				}
				for _, v := range c.Seconds {
					seconds += v
				}
				if seconds > 0 {
					s.speeds, s.questions = s.speeds+tokens/seconds, s.questions+1
				}
				for _, n := range c.Accepts {
					s.accepts, s.steps = s.accepts+float64(n), s.steps+1
				}
			}
		}
	}
	t := &Table{Title: "By category", Columns: []string{"category", "questions", "tok/s", "mean accepted tokens"}}
	for _, name := range sortedKeys(by) {
		s := by[name]
		t.row(text(name), number(s.questions, 0), number(s.speeds/max(1, s.questions), 2), number(s.accepts/max(1, s.steps), 3))
	}
	return t
}
