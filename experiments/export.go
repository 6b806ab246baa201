package experiments

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/outside"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/experiments/load"
)

// ExportBench returns a cell of a load experiment, all measured requests of it, as
// vllm bench serve would have reported it.
func ExportBench(dir, cell string) (*outside.BenchResult, error) {
	sum, err := ReadLoadSummary(dir)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(sum.Cells, func(c load.Cell) bool { return c.Name() == cell })
	if i < 0 {
		var names []string
		for _, c := range sum.Cells {
			names = append(names, c.Name())
		}
		return nil, fmt.Errorf("%s has no cell %q; it has %s", dir, cell, acceptance.Some(names))
	}
	rows, err := load.ReadRowsFile(filepath.Join(dir, load.CellsDir, cell, load.RequestsFile))
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r load.Row) bool { return r.Phase != load.Measured })
	f := load.Measure(nil, load.Whole(rows))
	metric := func(d *load.Dist) outside.BenchMetric {
		return outside.BenchMetric{"mean": d.Mean, "median": d.P50, "std": d.SD, "p90": d.P90, "p99": d.P99}
	}
	b := &outside.BenchResult{
		Date: sum.Cells[i].Started.UTC().Format("20060102-150405"), EndpointType: "openai", Label: cell, ModelID: sum.Provenance["model"], TokenizerID: sum.Provenance["model"],
		NumPrompts: len(rows), Duration: f.Seconds, TTFT: metric(&f.TTFT), TPOT: metric(&f.TPOT), ITL: metric(&f.ICL), E2EL: metric(&f.E2E),
		InputLens: []int{}, OutputLens: []int{}, TTFTs: []float64{}, ITLs: [][]float64{}, StartTimes: []float64{}, Errors: []string{},
	}
	for i := range rows {
		addRow(b, &rows[i])
	}
	if b.Duration > 0 {
		b.RequestRate, b.OutputRate, b.TokenRate = float64(b.Completed)/b.Duration, float64(b.OutputTokens)/b.Duration, float64(b.InputTokens+b.OutputTokens)/b.Duration
	}
	return b, nil
}

// addRow adds a request. One that failed has zeros, as there.
func addRow(b *outside.BenchResult, r *load.Row) {
	const second = float64(time.Second)
	output, ttft, gaps := 0, 0.0, []float64{}
	if r.OK() {
		output, ttft = r.Output, float64(r.First-r.Sent)/second
		for _, g := range r.Gaps {
			gaps = append(gaps, float64(g)/second)
		}
		b.Completed++
		b.InputTokens += int64(r.Prompt)
		b.OutputTokens += int64(r.Output)
	} else {
		b.Failed++
	}
	b.InputLens, b.OutputLens, b.Errors = append(b.InputLens, r.Prompt), append(b.OutputLens, output), append(b.Errors, r.Error)
	b.TTFTs, b.ITLs, b.StartTimes = append(b.TTFTs, ttft), append(b.ITLs, gaps), append(b.StartTimes, float64(r.Sent)/second)
}

// ExportAnswers returns a point of a run of strategies, of one sequence in flight, as
// Spec-Bench would have written its answers: a choice for each round. Each request is
// one turn. Its steps are its verifications, so that the first token, which comes with
// the prompt, belongs to none; wall times are those of the engine's steps, the prompt's
// among them.
func ExportAnswers(dir, point string) ([]outside.SpecAnswer, error) {
	sum, err := ReadSummary(dir)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(sum.Runs, func(r PointResult) bool { return r.String() == point })
	switch {
	case i < 0:
		var names []string
		for _, r := range sum.Runs {
			names = append(names, r.String())
		}
		return nil, fmt.Errorf("%s has no point %q; it has %s", dir, point, acceptance.Some(names))
	case sum.Runs[i].Concurrency != 1:
		return nil, fmt.Errorf("point %s has %d sequences in flight: Spec-Bench's times are of one", point, sum.Runs[i].Concurrency)
	case sum.Runs[i].Simulated:
		return nil, fmt.Errorf("point %s is simulated, and Spec-Bench's answers have no place that says so", point)
	}
	prompts, err := readLines[Prompt](filepath.Join(dir, "prompts.jsonl"), "prompt")
	if err != nil {
		return nil, err
	}
	started, err := time.Parse(time.RFC3339, sum.Provenance["started"])
	if err != nil {
		return nil, fmt.Errorf("%s: started: %w", filepath.Join(dir, "summary.json"), err)
	}
	runs, err := specRuns(dir, point)
	if err != nil {
		return nil, err
	}
	var out []outside.SpecAnswer
	for _, p := range prompts {
		a := outside.SpecAnswer{Question: any(p.ID), Category: p.Class, ID: point + "/" + p.ID, Model: sum.Provenance["model"] + "/" + point, Time: float64(started.Unix())}
		if n, err := strconv.Atoi(p.ID); err == nil {
			a.Question = float64(n)
		}
		for round := 0; runs[request(point, round, p.ID)] != nil; round++ {
			a.Choices = append(a.Choices, *runs[request(point, round, p.ID)])
		}
		if len(a.Choices) == 0 {
			return nil, fmt.Errorf("%s: the run has no finished output of prompt %s at %s", dir, p.ID, point)
		}
		out = append(out, a)
	}
	return out, nil
}

func request(point string, round int, prompt string) string {
	return fmt.Sprintf("%s.r%d/%s", point, round, prompt)
}

// specRuns gathers the finished requests of a point from outputs and records.
func specRuns(dir, point string) (map[string]*outside.SpecRun, error) {
	outputs, err := readLines[output](filepath.Join(dir, "outputs.jsonl"), "output")
	if err != nil {
		return nil, err
	}
	runs := map[string]*outside.SpecRun{}
	for _, o := range outputs {
		name, _ := acceptance.SplitRequest(o.Request)
		if p := acceptance.ParsePoint(name); p.Name == point {
			runs[o.Request] = &outside.SpecRun{Index: p.Round, Turns: []string{o.Text}, Steps: []int64{0}, Tokens: []int64{0}, Seconds: []float64{0}, Accepts: []int64{}}
		}
	}
	reader, err := acceptance.Open(dir)
	if err != nil {
		return nil, err
	}
	for r, err := range reader.All() {
		if err != nil {
			return nil, err
		}
		run := runs[r.Request]
		if run == nil {
			continue
		}
		run.Tokens[0] += int64(r.Emitted())
		run.Seconds[0] += float64(r.TotalNs) / 1e9
		if r.Phase == engine.Decode {
			run.Steps[0]++
			run.Accepts = append(run.Accepts, int64(r.Emitted()))
		}
	}
	return runs, nil
}
