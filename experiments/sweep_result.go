package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"exacta.dev/exacta/experiments/load"
	"exacta.dev/exacta/internal/disk"
)

// SweepResult is what a sweep found: results.json, of the points that are finished.
type SweepResult struct {
	Dir    string       `json:"dir"`
	Points []PointFound `json:"points"`
	Left   []int        `json:"left"` // points that are not finished
	Exact  bool         `json:"exact"`
	// Simulated and Lossy say that some point is.
	Simulated bool `json:"simulated"`
	Lossy     bool `json:"lossy"`
	// Versions of the program that ran points; several where a sweep was resumed
	// by another build.
	Versions []string `json:"versions"`
}

// PointFound is one finished point.
type PointFound struct {
	SweepPoint
	Status PointStatus `json:"status"`
	// Deterministic is the SHA-256 of what the point's run gives whatever the
	// machine and its load: outputs and acceptance, no times. See Deterministic.
	Deterministic string `json:"deterministic"`
	// Summary is the point's summary.json.
	Summary json.RawMessage `json:"summary"`
}

// Result merges the finished points, and writes results.json.
func (s *SweepDir) Result() (*SweepResult, error) {
	res := &SweepResult{Dir: s.Dir, Points: []PointFound{}, Left: []int{}, Exact: true, Versions: []string{}}
	for i := range s.Points {
		p := &s.Points[i]
		st := s.Finished(p)
		if st == nil {
			res.Left = append(res.Left, i)
			continue
		}
		found := PointFound{SweepPoint: *p, Status: *st}
		var stamps struct{ Simulated, Lossy bool }
		text, err := os.ReadFile(filepath.Join(s.path(p), "summary.json"))
		if err == nil {
			err = json.Unmarshal(text, &stamps)
		}
		if err == nil {
			found.Summary = text
			found.Deterministic, err = Deterministic(s.path(p))
		}
		if err != nil {
			return nil, fmt.Errorf("point %d: %w", i, err)
		}
		res.Points = append(res.Points, found)
		res.Exact = res.Exact && st.Exit == 0
		res.Simulated, res.Lossy = res.Simulated || stamps.Simulated, res.Lossy || stamps.Lossy
		if !slices.Contains(res.Versions, st.Version) {
			res.Versions = append(res.Versions, st.Version)
		}
	}
	text, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		return nil, err
	}
	return res, disk.WriteWhole(filepath.Join(s.Dir, resultFile), append(text, '\n'))
}

// Table prints the tables of all finished points.
func (r *SweepResult) Table(out io.Writer) error {
	for i := range r.Points {
		p := &r.Points[i]
		fmt.Fprintf(out, "point %d: %s\n", p.Point, p)
		text, err := os.ReadFile(filepath.Join(r.Dir, filepath.FromSlash(p.Dir)+".txt"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("run directory: %w", err)
		}
		if _, err := fmt.Fprintf(out, "%s\n", text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d points of %d are finished; merged in %s\n", len(r.Points), len(r.Points)+len(r.Left), filepath.Join(r.Dir, resultFile))
	return err
}

// Deterministic is the SHA-256, in hexadecimal digits, of what a run gives whatever the
// machine and its load. Of strategies that is the outputs in their order, and of the
// summary the points with their tokens, acceptance and verdicts; draft lengths that
// follow measured costs (length: auto) are not of that kind, and make it differ. Of a
// load experiment it is what each target was asked at each point.
func Deterministic(dir string) (string, error) {
	h := sha256.New()
	if HoldsLoad(dir) {
		sum, err := ReadLoadSummary(dir)
		if err != nil {
			return "", err
		}
		cells := slices.SortedFunc(slices.Values(sum.Cells), func(a, b load.Cell) int { return strings.Compare(a.Name(), b.Name()) })
		for _, c := range cells {
			fmt.Fprintf(h, "%s %s\n", c.Name(), c.Plan)
		}
		return hex.EncodeToString(h.Sum(nil)), nil
	}
	sum, err := ReadSummary(dir)
	if err != nil {
		return "", err
	}
	kept := Summary{Name: sum.Name, Prompts: sum.Prompts, Interrupted: sum.Interrupted, Simulated: sum.Simulated, Lossy: sum.Lossy, Warnings: sum.Warnings}
	for _, r := range sum.Runs {
		k := PointResult{
			Point: r.Point, Tokens: r.Tokens, AcceptLength: r.AcceptLength, RealAcceptLength: r.RealAcceptLength, AcceptanceByPosition: r.AcceptanceByPosition,
			Repeated4Grams: r.Repeated4Grams, FreshAcceptLength: r.FreshAcceptLength, Exact: r.Exact, FirstDiff: r.FirstDiff,
			Lossy: r.Lossy, Simulated: r.Simulated, Preemptions: r.Preemptions,
		}
		for _, c := range r.Classes {
			k.Classes = append(k.Classes, ClassResult{Class: c.Class, Tokens: c.Tokens, AcceptLength: c.AcceptLength, AcceptanceByPosition: c.AcceptanceByPosition})
		}
		kept.Runs = append(kept.Runs, k)
	}
	if err := json.NewEncoder(h).Encode(kept); err != nil {
		return "", err
	}
	f, err := os.Open(filepath.Join(dir, "outputs.jsonl"))
	if err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
