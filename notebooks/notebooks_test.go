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
var needed = []string{"pyarrow", "matplotlib", "nbformat", "nbclient", "ipykernel"}

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

// smallRun makes a run of the embedded model: two prompts, two strategies.
func smallRun(t *testing.T) string {
	t.Helper()
	if _, err := embedded.FS(); err != nil {
		t.Skipf("the notebook is not executed: there is no model to make a run with: %v", err)
	}
	cfg := experiments.Default()
	cfg.Prompts.Limit = 2
	cfg.MaxNew = 24
	cfg.Strategies = []experiments.Strategy{{Drafter: "mtp", K: []int{1, 3}}, {Drafter: "ngram", K: []int{3}}}
	cfg.Concurrency = []int{1, 2}
	cfg.Repeats = 1
	dir := filepath.Join(t.TempDir(), "run")
	_, err := experiments.Run(t.Context(), cfg, experiments.RunOptions{Dir: dir, Version: "test"})
	require.NoError(t, err)
	return dir
}

// execute runs a notebook on a run directory; nothing of the user's settings
// matters, and nothing is left in their home.
func execute(t *testing.T, python, notebook, run, figures string) (string, error) {
	t.Helper()
	scratch := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "execute.py", notebook)
	cmd.Env = append(os.Environ(),
		"EXACTA_RUN="+run, "EXACTA_FIGURES="+figures, "MPLBACKEND=module://matplotlib_inline.backend_inline", "JUPYTER_PREFER_ENV_PATH=1",
		"JUPYTER_CONFIG_DIR="+scratch, "JUPYTER_DATA_DIR="+scratch, "JUPYTER_RUNTIME_DIR="+scratch, "IPYTHONDIR="+scratch, "MPLCONFIGDIR="+scratch)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// figures is what the notebook writes.
type figures struct {
	Run    string `json:"run"`
	Points []struct {
		Point string `json:"point"`
		acceptance.Summary
	} `json:"points"`
	StepMsByRows map[string]float64 `json:"step_ms_by_rows"`
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
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&got))
	require.Equal(t, "run", got.Run)

	group, records := readRun(t, dir)
	require.Len(t, got.Points, len(group.Order))
	accepted := 0
	for i, p := range got.Points {
		require.Equal(t, group.Order[i], p.Point)
		require.Equal(t, group.By[p.Point].Summary(), p.Summary, "figures of %s: the notebook's are the actual ones", p.Point)
		accepted += int(p.Accepted)
	}
	require.Greater(t, accepted, 20, "a run without accepted drafts would show little")
	require.Equal(t, stepMsByRows(records), got.StepMsByRows)
	requireAllFields(t, text, group)
}

// requireAllFields fails when the notebook leaves out a figure of Summary.
func requireAllFields(t *testing.T, text []byte, group *acceptance.Group) {
	t.Helper()
	ours, err := json.Marshal(group.By[group.Order[0]].Summary())
	require.NoError(t, err)
	var want map[string]any
	require.NoError(t, json.Unmarshal(ours, &want))
	var have struct {
		Points []map[string]any `json:"points"`
	}
	require.NoError(t, json.Unmarshal(text, &have))
	for key := range want {
		require.Contains(t, have.Points[0], key)
	}
}

func readRun(t *testing.T, dir string) (*acceptance.Group, []*engine.Record) {
	t.Helper()
	r, err := acceptance.Open(dir)
	require.NoError(t, err)
	group := acceptance.NewGroup(acceptance.ByPoint)
	var records []*engine.Record
	for rec, err := range r.All() {
		require.NoError(t, err)
		group.Add(rec)
		records = append(records, rec)
	}
	return group, records
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

// TestNoRun: a directory without records ends the notebook with an error that
// says so.
func TestNoRun(t *testing.T) {
	t.Parallel()
	py := python(t)
	out, err := execute(t, py, "acceptance_anatomy.ipynb", t.TempDir(), filepath.Join(t.TempDir(), "figures.json"))
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", out)
	require.Equal(t, 1, exit.ExitCode(), "%s", out)
	require.Contains(t, out, "EXACTA_RUN names no run directory: it holds no records-000001.parquet")
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
