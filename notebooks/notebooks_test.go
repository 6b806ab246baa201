package notebooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/embedded"
	"exacta.dev/exacta/experiments"
)

// needed are the Python modules that executing a notebook takes.
var needed = []string{"pyarrow", "numpy", "matplotlib", "nbformat", "nbclient", "ipykernel"}

// python returns an interpreter that has what notebooks need. The one that
// EXACTA_PYTHON names must; without the variable the test is skipped if python3
// has not.
func python(t *testing.T) string {
	t.Helper()
	name, asked := os.LookupEnv("EXACTA_PYTHON")
	complain := t.Fatalf
	if !asked {
		name, complain = "python3", t.Skipf
	}
	path, err := exec.LookPath(name)
	if err != nil {
		complain("the notebook is not executed: %v; set EXACTA_PYTHON to a Python with %s", err, strings.Join(needed, ", "))
	}
	script := "import importlib.util as u, sys\nprint(*[m for m in sys.argv[1:] if u.find_spec(m) is None])"
	out, err := exec.CommandContext(t.Context(), path, append([]string{"-c", script}, needed...)...).CombinedOutput()
	missing := strings.Fields(string(out))
	if err != nil {
		complain("the notebook is not executed: %s does not run: %v\n%s", path, err, out)
	}
	if len(missing) > 0 {
		complain("the notebook is not executed: %s lacks %s; install them, or set EXACTA_PYTHON to a Python that has them", path, strings.Join(missing, ", "))
	}
	return path
}

// prompts of two classes.
var prompts = []string{
	`{"id": "code/0", "class": "code", "prompt": "func Reverse(s string) string {\n"}`,
	`{"id": "code/1", "class": "code", "prompt": "type Server struct {\n\tmu sync.Mutex\n"}`,
	`{"id": "text-0", "class": "text", "prompt": "// Package sort provides primitives for sorting slices and"}`,
	`{"id": "code/2", "class": "code", "prompt": "for i := 0; i < len(a); i++ {\n\tif a[i] == "}`,
	`{"id": "text-1", "class": "text", "prompt": "The quick brown fox jumps over the lazy dog. The quick brown"}`,
}

// smallRun makes a run of the embedded model: two classes of prompts, three
// strategies. The records of ngram are stamped as simulated afterwards, so that
// there are both kinds.
func smallRun(t *testing.T) string {
	t.Helper()
	if _, err := embedded.FS(); err != nil {
		t.Skipf("the notebook is not executed: there is no model to make a run with: %v", err)
	}
	cfg := experiments.Default()
	cfg.Prompts = experiments.Prompts{File: filepath.Join(t.TempDir(), "prompts.jsonl")}
	require.NoError(t, os.WriteFile(cfg.Prompts.File, []byte(strings.Join(prompts, "\n")), 0o644))
	cfg.MaxNew = 40
	cfg.Strategies = []experiments.Strategy{{Drafter: "mtp", K: []int{1, 3}}, {Drafter: "ngram", K: []int{3}}}
	cfg.Concurrency = []int{1, 2}
	cfg.Repeats = 2
	dir := filepath.Join(t.TempDir(), "run")
	_, err := experiments.Run(t.Context(), cfg, experiments.RunOptions{Dir: dir, Version: "test"})
	require.NoError(t, err)
	return stamp(t, dir)
}

// stamp returns a copy of a run in which ngram's acceptance is simulated.
func stamp(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(to, 0o755))
	w, err := acceptance.NewWriter(to, acceptance.Meta{Run: "run"})
	require.NoError(t, err)
	for _, r := range readRun(t, dir) {
		if strings.Contains(r.Request, "-ngram.") && r.Phase == engine.Decode {
			r.Simulated, r.Simulation = true, "length=1.4"
		}
		require.NoError(t, w.Record(r))
	}
	require.NoError(t, w.Close())
	for _, name := range []string{"prompts.jsonl", "outputs.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o644))
	}
	return to
}

// execute runs a notebook on a run directory; nothing of the user's settings
// matters, and nothing is left in their home.
func execute(t *testing.T, python, notebook, run, figures string, more ...string) (string, error) {
	t.Helper()
	scratch := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "execute.py", notebook)
	cmd.Env = append(os.Environ(),
		"EXACTA_RUN="+run, "EXACTA_FIGURES="+figures, "MPLBACKEND=module://matplotlib_inline.backend_inline", "JUPYTER_PREFER_ENV_PATH=1",
		"JUPYTER_CONFIG_DIR="+scratch, "JUPYTER_DATA_DIR="+scratch, "JUPYTER_RUNTIME_DIR="+scratch, "IPYTHONDIR="+scratch, "MPLCONFIGDIR="+scratch)
	cmd.Env = append(cmd.Env, more...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// figures is what the notebook writes.
type figures struct {
	Run          string               `json:"run"`
	Points       []point              `json:"points"`
	Classes      []class              `json:"classes"`
	Bucket       int64                `json:"bucket"`
	Windows      []acceptance.Window  `json:"windows"`
	Speedups     []acceptance.Speedup `json:"speedups"`
	StepMsByRows map[string]float64   `json:"step_ms_by_rows"`
}

type point struct {
	Point string `json:"point"`
	acceptance.Summary
	Positions []acceptance.Position `json:"positions"`
}

type class struct {
	Point string `json:"point"`
	Class string `json:"class"`
	acceptance.Acceptance
	Passes    int                   `json:"passes"`
	Positions []acceptance.Position `json:"positions"`
}

const confidence = 0.95

// ours computes the figures with package acceptance.
func ours(t *testing.T, dir string, records []*engine.Record, bucket int64) figures {
	t.Helper()
	known, err := acceptance.ReadPrompts(dir)
	require.NoError(t, err)
	points, classes := acceptance.NewGroup(acceptance.ByPoint), acceptance.NewGroup(acceptance.ByClass(known))
	pooled := acceptance.NewGroup(acceptance.ByPooledPoint)
	windows, err := acceptance.NewWindows(acceptance.OverPosition, bucket)
	require.NoError(t, err)
	for _, r := range records {
		points.Add(r)
		classes.Add(r)
		pooled.Add(r)
		require.NoError(t, windows.Add(r))
	}
	out := figures{Run: "run", Bucket: bucket, Speedups: acceptance.Speedups(pooled), StepMsByRows: stepMsByRows(records)}
	for _, name := range points.Order {
		s := points.By[name]
		out.Points = append(out.Points, point{name, s.Summary(), s.Positions(confidence, 1)})
	}
	for _, name := range classes.Order {
		s := classes.By[name]
		p, c, _ := strings.Cut(name, "/")
		out.Classes = append(out.Classes, class{p, c, s.Acceptance(), s.Passes(), s.Positions(confidence, s.Passes())})
	}
	out.Windows, err = windows.Lines(confidence)
	require.NoError(t, err)
	return out
}

// TestAnatomy executes the notebook on a fresh run and expects of it the figures
// of package acceptance, exactly.
func TestAnatomy(t *testing.T) {
	t.Parallel()
	py := python(t)
	dir := smallRun(t)
	file := filepath.Join(t.TempDir(), "figures.json")
	out, err := execute(t, py, "acceptance_anatomy.ipynb", dir, file)
	require.NoError(t, err, "%s", out)

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var got figures
	strictly(t, text, &got)
	records := readRun(t, dir)
	want := ours(t, dir, records, got.Bucket)
	require.Len(t, got.Points, len(want.Points))
	accepted := 0
	for i, p := range got.Points {
		require.Equal(t, want.Points[i], p, "figures of %s: the notebook's are the actual ones", p.Point)
		accepted += int(p.Accepted)
	}
	require.Greater(t, accepted, 20, "a run without accepted drafts would show little")
	require.Equal(t, want.Classes, got.Classes)
	require.Equal(t, want.Windows, got.Windows)
	require.Equal(t, want.Speedups, got.Speedups)
	require.Equal(t, want, got)
	requireAllFields(t, text, "points", want.Points[0])
	requireAllFields(t, text, "classes", want.Classes[0])
	requireAllFields(t, text, "windows", want.Windows[0])
	requireAllFields(t, text, "speedups", want.Speedups[0])

	require.Len(t, got.Classes, 2*9, "two classes of a reference and eight points")
	require.Equal(t, 2, got.Classes[2].Passes)
	require.Len(t, got.Speedups, 6)
	simulated := 0
	for _, s := range got.Speedups {
		require.Positive(t, s.Expected)
		require.Empty(t, s.Why)
		if s.Simulated {
			require.Equal(t, "length=1.4", s.Simulation)
			simulated++
		}
	}
	require.Equal(t, 2, simulated)
}

// TestComparingRuns executes the notebook on two points of a run, and on the same
// point of two runs, and expects of it the paired bootstrap of package
// acceptance, exactly.
func TestComparingRuns(t *testing.T) {
	t.Parallel()
	py := python(t)
	dir := smallRun(t)
	for _, c := range []struct{ a, b string }{
		{"0-mtp.k3.greedy.c2", "0-mtp.k1.greedy.c2"},
		{"1-ngram.k3.greedy.c1.r0", "1-ngram.k3.greedy.c2"}, // both simulated
		{"plain.greedy.c1", "0-mtp.k1.greedy.c1"},
	} {
		file := filepath.Join(t.TempDir(), "figures.json")
		out, err := execute(t, py, "comparing_runs.ipynb", dir, file, "EXACTA_POINTS="+c.a+","+c.b)
		require.NoError(t, err, "%s", out)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var got acceptance.Comparison
		strictly(t, text, &got)

		a, b := acceptance.NewSide(c.a), acceptance.NewSide(c.b)
		for _, r := range readRun(t, dir) {
			a.Add(r)
			b.Add(r)
		}
		want, err := acceptance.PairedBootstrap(a, b, acceptance.Resamples{Number: 10000, Seed: 1, Confidence: confidence})
		require.NoError(t, err)
		require.Equal(t, *want, got, "the notebook's are the actual ones")
		require.GreaterOrEqual(t, len(got.Figures), 4)
	}
	out, err := execute(t, py, "comparing_runs.ipynb", dir, filepath.Join(t.TempDir(), "f"), "EXACTA_POINTS=0-mtp.k3.greedy.c1,1-ngram.k3.greedy.c1")
	require.Error(t, err)
	require.Contains(t, out, "simulated and real acceptance are not compared")
}

// strictly decodes JSON that has no other fields than v.
func strictly(t *testing.T, text []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(v))
}

// requireAllFields fails when the notebook leaves out a figure of a line.
func requireAllFields(t *testing.T, text []byte, list string, line any) {
	t.Helper()
	ours, err := json.Marshal(line)
	require.NoError(t, err)
	var want map[string]any
	require.NoError(t, json.Unmarshal(ours, &want))
	var have map[string]any
	require.NoError(t, json.Unmarshal(text, &have))
	for key := range want {
		require.Contains(t, have[list].([]any)[0], key)
	}
}

func readRun(t *testing.T, dir string) []*engine.Record {
	t.Helper()
	r, err := acceptance.Open(dir)
	require.NoError(t, err)
	var records []*engine.Record
	for rec, err := range r.All() {
		require.NoError(t, err)
		records = append(records, rec)
	}
	return records
}

// stepMsByRows is the median duration of measured steps without prefill, by the
// rows of the step. Steps are numbered through a run.
func stepMsByRows(records []*engine.Record) map[string]float64 {
	times := map[string][]float64{}
	seen := map[int64]bool{}
	for _, r := range records {
		if strings.HasPrefix(r.Request, "reference-") || seen[r.Step] || r.PrefillTokens > 0 {
			continue
		}
		seen[r.Step] = true
		rows := fmt.Sprint(r.BatchRows)
		times[rows] = append(times[rows], float64(r.TotalNs)/1e6)
	}
	out := map[string]float64{}
	for rows, ms := range times {
		slices.Sort(ms)
		out[rows] = ms[len(ms)/2]
		if n := len(ms); n%2 == 0 {
			out[rows] = (ms[n/2-1] + ms[n/2]) / 2
		}
	}
	return out
}

// TestNoRun: a directory without records ends a notebook with an error that says
// so, and so does a point that is not there.
func TestNoRun(t *testing.T) {
	t.Parallel()
	py := python(t)
	for _, c := range []struct{ notebook, points, want string }{
		{"acceptance_anatomy.ipynb", "MORE=", "EXACTA_RUN names no run directory: it holds no records-000001.parquet"},
		{"comparing_runs.ipynb", "EXACTA_POINTS=a,b", "names no run directory: it holds no records-000001.parquet"},
		{"comparing_runs.ipynb", "MORE=", "set EXACTA_RUN to a run directory and EXACTA_POINTS to two of its points"},
	} {
		out, err := execute(t, py, c.notebook, t.TempDir(), filepath.Join(t.TempDir(), "figures.json"), c.points)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, 1, exit.ExitCode(), "%s", out)
		require.Contains(t, out, c.want)
	}
}

// TestCommittedClean: notebooks are committed without outputs, so without anyone's
// paths, and every cell of code follows one of text.
func TestCommittedClean(t *testing.T) {
	names, err := filepath.Glob("*.ipynb")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	path := regexp.MustCompile(`(^|[\s"'=(])(/(home|root|tmp|Users|work|mnt)/|[A-Z]:\\)`)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var nb struct {
			Cells []struct {
				Type    string   `json:"cell_type"`
				Count   *int     `json:"execution_count"`
				Outputs []any    `json:"outputs"`
				Source  []string `json:"source"`
			} `json:"cells"`
		}
		require.NoError(t, json.Unmarshal(text, &nb), name)
		require.NotEmpty(t, nb.Cells, name)
		before := ""
		for i, c := range nb.Cells {
			require.Empty(t, c.Outputs, "%s, cell %d: clear its outputs", name, i)
			require.Nil(t, c.Count, "%s, cell %d: clear its outputs", name, i)
			require.NotRegexp(t, path, strings.Join(c.Source, ""), "%s, cell %d", name, i)
			require.False(t, c.Type == "code" && before != "markdown", "%s, cell %d: code without a text before it", name, i)
			before = c.Type
		}
	}
}
