package report

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/experiments"
	"exacta.dev/exacta/experiments/load"
)

// evil is a name that would be a program, a formula or a table if it were let.
const evil = "=<script>alert(1)</script><img src=x onerror=alert(2)>'\"`|[x](javascript:alert(3))\n| a |"

// smallRun is a run of two classes of prompts, one of an evil name, with a simulated
// strategy.
var smallRun = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "exacta-report-")
	if err != nil {
		return "", err
	}
	var lines strings.Builder
	for _, p := range []map[string]string{
		{"id": "a", "class": evil, "prompt": "func Reverse(s string) string {\n"},
		{"id": evil, "class": "text", "prompt": "// Package sort provides"},
	} {
		text, err := json.Marshal(p)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&lines, "%s\n", text)
	}
	length := 1.8
	cfg := experiments.Default()
	cfg.Name, cfg.MaxNew, cfg.Repeats = "small", 24, 2
	cfg.Prompts.File = filepath.Join(dir, "prompts.jsonl")
	cfg.Strategies = []experiments.Strategy{
		{Drafter: "mtp", K: []int{1, 3}}, {Drafter: "mtp", K: []int{2}, Simulate: &experiments.Simulate{Length: &length}},
	}
	if err := os.WriteFile(cfg.Prompts.File, []byte(lines.String()), 0o644); err != nil {
		return "", err
	}
	_, err = experiments.Run(context.Background(), cfg, experiments.RunOptions{Dir: filepath.Join(dir, "run"), Version: evil})
	return filepath.Join(dir, "run"), err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := smallRun(); err == nil {
		_ = os.RemoveAll(filepath.Dir(dir))
	}
	os.Exit(code)
}

// copied is a run directory that a test may change.
func copied(t *testing.T) string {
	t.Helper()
	from, err := smallRun()
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// printed is a report in its three forms.
func printed(t *testing.T, r *Report) (page, table, markdown string) {
	t.Helper()
	var out [3]strings.Builder
	require.NoError(t, r.HTML(&out[0]))
	require.NoError(t, r.CSV(&out[1]))
	require.NoError(t, r.Markdown(&out[2]))
	return out[0].String(), out[1].String(), out[2].String()
}

// requireHarmless looks for anything of evil that would come to life.
func requireHarmless(t *testing.T, r *Report) {
	t.Helper()
	page, table, markdown := printed(t, r)
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.False(t, strings.Contains(page, "<img"))
	require.False(t, strings.Contains(page, "NaN"))
	for _, run := range r.Runs {
		for _, p := range run.Plots {
			dec := xml.NewDecoder(strings.NewReader(string(p.SVG)))
			for {
				token, err := dec.Token()
				if err == io.EOF {
					break
				}
				require.NoError(t, err, "%s: %s", p.Title, p.SVG)
				if e, ok := token.(xml.StartElement); ok {
					require.Contains(t, []string{"svg", "text", "line", "rect", "title", "circle", "polyline"}, e.Name.Local)
					for _, a := range e.Attr {
						require.NotContains(t, a.Value, "NaN")
						require.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
					}
				}
			}
		}
	}
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	for _, row := range rows {
		require.Len(t, row, 5)
		for _, text := range row {
			require.False(t, text != "" && strings.ContainsRune("=+@", rune(text[0])), text)
		}
	}
	require.False(t, strings.Contains(markdown, "<"))
	require.False(t, strings.Contains(strings.ReplaceAll(markdown, `\](`, ""), "]("), "a link")
}

func TestStrategies(t *testing.T) {
	dir := copied(t)
	r, err := Gather([]string{dir})
	require.NoError(t, err)
	require.Len(t, r.Runs, 1)
	run := r.Runs[0]
	require.Equal(t, "strategies", run.Kind)
	require.Equal(t, "simulated", run.Stamps[0].Word)
	require.True(t, run.Stamps[0].Loud)
	require.Equal(t, []Verdict{{"audits", "not made", "exacta audit " + dir + " makes them"}}, run.Audits)
	requireHarmless(t, r)
	page, table, markdown := printed(t, r)
	require.True(t, strings.Contains(page, "alert(1)"), "the name is shown")
	require.Contains(t, page, `<li class="loud"><b>simulated</b>`)
	require.Contains(t, markdown, "- **SIMULATED**: ")
	for _, title := range []string{"Speed over plain decoding", "Acceptance by position", "Conditional acceptance", "Accept length along the output", "Speed-up", "By class of prompt"} {
		require.Contains(t, page, "<h3>"+title+"</h3>")
	}
	// Figures are those of the summary.
	sum, err := experiments.ReadSummary(dir)
	require.NoError(t, err)
	for _, p := range sum.Runs {
		require.Contains(t, table, fmt.Sprintf("Speeds,%d,accept length,%.3f\n", 1+indexOf(sum, p.String()), p.AcceptLength))
		for i, rate := range p.AcceptanceByPosition {
			require.Contains(t, markdown, fmt.Sprintf("| %s | %d | ", escape(p.String()), i+1))
			require.Contains(t, markdown, fmt.Sprintf(" | %.4f | ", rate))
		}
	}
	require.Equal(t, len(sum.Runs), len(run.Tables[0].Rows))
}

func indexOf(sum *experiments.Summary, name string) int {
	for i := range sum.Runs {
		if sum.Runs[i].String() == name {
			return i
		}
	}
	return -1
}

// Verdicts are those of the run as it is: one that was changed after its audits is
// stale, and audits that were left out were not made.
func TestVerdicts(t *testing.T) {
	dir := copied(t)
	res, err := experiments.Audit(t.Context(), dir, experiments.AuditOptions{Only: []string{"counts"}})
	require.NoError(t, err)
	require.NoError(t, experiments.KeepAudit(dir, res))
	verdicts := func() []Verdict {
		r, err := Gather([]string{dir})
		require.NoError(t, err)
		return r.Runs[0].Audits
	}
	require.Equal(t, []Verdict{{"counts", "pass", ""}, {"tokens", "not made", ""}, {"work", "not made", ""}}, verdicts())
	// Another audit of the same files goes beside.
	more := &experiments.AuditResult{Run: res.Run, Tokens: &audit.Report{Audit: "tokens", Verdict: audit.Fail, Why: evil}}
	require.NoError(t, experiments.KeepAudit(dir, more))
	require.Equal(t, []Verdict{{"tokens", "fail", evil}, {"counts", "pass", ""}, {"work", "not made", ""}}, verdicts())
	r, err := Gather([]string{dir})
	require.NoError(t, err)
	requireHarmless(t, r)
	page, _, _ := printed(t, r)
	require.Contains(t, page, `<b>tokens</b> <span class="fail">fail</span>`)
	require.Less(t, strings.Index(page, `class="verdicts"`), strings.Index(page, "<svg"))

	f, err := os.OpenFile(filepath.Join(dir, "outputs.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "stale", verdicts()[0].Verdict)
}

// loadRun writes the directory of a load experiment with two targets.
func loadRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	dist := func(v float64) load.Dist { return load.Dist{N: 3, Mean: v, P50: v, P90: 2 * v, P99: 3 * v, Max: 3 * v} }
	figures := func(rate float64) load.Figures {
		return load.Figures{Seconds: 10, Admitted: 3, Finished: 3, OutTokS: rate, TTFT: dist(20), TPOT: dist(1000 / rate), E2E: dist(400), Interactivity: [2]float64{rate / 3, rate / 4}, Goodput: &load.Goodput{ReqS: 2.5}}
	}
	sum := load.Summary{
		Kind: load.Kind, Name: "l", Baseline: "plain", Points: []string{"1k-8"}, Simulated: true,
		Targets: []load.TargetInfo{{Name: "plain", Kind: "engine", Claims: map[string]string{"weights": evil}, Sources: map[string]string{"weights": "server"}}, {Name: "peer", Fake: true, Untuned: true}},
		Lines:   []load.Line{{Target: "plain", Point: "1k-8", Pooled: figures(100), Engine: &load.Engine{AcceptLength: 2.25, Simulated: true}}, {Target: "peer", Point: "1k-8", Pooled: figures(80), Lagging: 1}},
		Comparisons: []load.Comparison{{Target: "peer", Baseline: "plain", Point: "1k-8", Losses: 2, SpeedUp: 0.8, Unfair: []string{evil},
			Metrics: []load.Versus{{Metric: "out_tok_s", Value: 80, Baseline: 100, Ratio: 0.8, Outcome: "loss"}}}},
	}
	for _, target := range []string{"plain", "peer"} {
		c := load.Cell{Target: target, Point: "1k-8", Window: load.Window{From: 1e9, To: 9e9}}
		sum.Cells = append(sum.Cells, c)
		var rows []load.Row
		for i := range 5000 {
			at := int64(i) * 2e6
			rows = append(rows, load.Row{Request: fmt.Sprint(evil, i), Session: "s", Phase: load.Measured, Sched: at, Sent: at, First: at + 20e6, Last: at + 400e6, End: at + 400e6, Gaps: []int64{380e6}, Output: 9, Cached: -1})
		}
		at := filepath.Join(dir, load.CellsDir, c.Name())
		require.NoError(t, os.MkdirAll(at, 0o755))
		f, err := os.Create(filepath.Join(at, load.RequestsFile))
		require.NoError(t, err)
		require.NoError(t, load.WriteRows(f, rows))
		require.NoError(t, f.Close())
	}
	text, err := json.Marshal(sum)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, load.SummaryFile), text, 0o644))
	return dir
}

func TestLoad(t *testing.T) {
	r, err := Gather([]string{loadRun(t)})
	require.NoError(t, err)
	requireHarmless(t, r)
	run := r.Runs[0]
	var words []string
	for _, s := range run.Stamps {
		words = append(words, s.Word)
	}
	require.Equal(t, []string{"simulated", "fake target", "untuned", "unfair", "lagging"}, words)
	page, table, markdown := printed(t, r)
	for _, title := range []string{"Load", "Percentiles", "Throughput", "Targets", "Comparisons", "Comparisons by metric", "Throughput and interactivity", "Timeline of plain.1k-8.r0"} {
		require.Contains(t, page, "<h3>"+title+"</h3>")
	}
	require.Contains(t, page, "Of 5000 requests one in 3 is drawn.")
	require.Less(t, strings.Count(page, "<circle"), 3*mostDots)
	require.Len(t, run.Tables[0].Columns, 2+load.Thirteen)
	require.Contains(t, table, "l,Throughput,1,goodput requests/s,2.500\n")
	require.Contains(t, markdown, "| 1k-8 | peer | out\\_tok\\_s | 80.000 | 100.000 | 0.800 |")
}

// A sweep's report has its points, each with its verdicts.
func TestSweep(t *testing.T) {
	run := copied(t)
	d, err := experiments.ParseDocument("s.yaml", []byte("name: s\nstrategies: [{drafter: ngram, k: [2]}]\nsweep: {grid: {max_new: [8, 9]}}\n"))
	require.NoError(t, err)
	s, err := experiments.CreateSweep(filepath.Join(t.TempDir(), "sweep"), d)
	require.NoError(t, err)
	at := filepath.Join(s.Dir, s.Points[1].Dir)
	require.NoError(t, os.CopyFS(at, os.DirFS(run)))
	require.NoError(t, s.Finish(1, experiments.PointStatus{Version: "v"}))
	r, err := Gather([]string{s.Dir})
	require.NoError(t, err)
	requireHarmless(t, r)
	require.Len(t, r.Runs, 2)
	require.Equal(t, "small, point 1: max_new=9", r.Runs[1].Name)
	require.Equal(t, "interrupted", r.Runs[0].Stamps[2-1].Word)
	require.Len(t, r.Runs[0].Tables[0].Rows, 2)
	require.Equal(t, "not made", r.Runs[0].Audits[0].Verdict)
	dirs, err := Auditable(s.Dir)
	require.NoError(t, err)
	require.Equal(t, []string{at}, dirs)
}

// What is no run, or a damaged one, is an error that names the file.
func TestBadRuns(t *testing.T) {
	_, err := Gather([]string{t.TempDir()})
	require.ErrorContains(t, err, "summary.json is not there")
	for name, want := range map[string]string{"summary.json": "summary.json", "records-000001.parquet": "records-000001.parquet", "audit.json": "audit.json"} {
		dir := copied(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("{"), 0o644))
		_, err := Gather([]string{dir})
		require.ErrorContains(t, err, want)
	}
	dir := loadRun(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, load.CellsDir, "peer.1k-8.r0", load.RequestsFile), []byte("{}\n"), 0o644))
	_, err = Gather([]string{dir})
	require.ErrorContains(t, err, load.RequestsFile)
}

// Plots of nothing, of one point and of values that are no numbers have places.
func TestDegeneratePlots(t *testing.T) {
	for _, points := range [][]point{nil, {{}}, {{x: 1, y: 0}, {x: 1, y: 0}}, {{x: 1e300, y: -1e300}, {x: -1e300, y: 1e300}}} {
		c := chart{lines: []line{{name: evil, points: points}}}
		require.NotContains(t, string(c.draw()), "NaN")
	}
	require.NotContains(t, string(drawBars(nil, 1)), "NaN")
	require.NotContains(t, string((&heatMap{rows: []heatRow{{"a", nil}}}).draw()), "NaN")
	require.Equal(t, []float64{0}, scale{high: math.Inf(1)}.ticks(false))
	require.Equal(t, []float64{1, 2, 3}, scale{low: 1, high: 3}.ticks(true))
	require.Equal(t, []point{{x: 1, y: 5}, {x: 3, y: 4}}, pareto([]point{{x: 1, y: 5}, {x: 2, y: 3}, {x: 3, y: 4}, {x: 3, y: 1}}))
}
