package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// compared is a run whose points are compared.
type compared struct {
	dir, run string
	order    []string
	sides    map[string]*acceptance.Side
	prompts  acceptance.Prompts // nil where the directory has none
}

// readCompared gathers a point of a run, or, without a name, all points but
// references. Requests of theirs that were cut short are an error.
func readCompared(dir, point string) (*compared, error) {
	c := &compared{dir: dir, sides: map[string]*acceptance.Side{}}
	var names []string
	if point != "" {
		names = []string{point}
	}
	meta, err := scan(dir, names, func(r *engine.Record) error {
		name := point
		if name == "" {
			name = acceptance.ByPooledPoint(r)
		}
		if point == "" && acceptance.ParsePoint(name).Reference {
			return nil
		}
		s := c.sides[name]
		if s == nil {
			s = acceptance.NewSide(name)
			c.sides[name] = s
			c.order = append(c.order, name)
		}
		s.Add(r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.run = meta.Run
	if c.prompts, err = acceptance.ReadPrompts(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, c.finished()
}

// finished refuses requests that the run did not bring to their end.
func (c *compared) finished() error {
	finished, err := acceptance.ReadFinished(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // not a run of an experiment: nothing says what was finished
	} else if err != nil {
		return err
	}
	for _, name := range c.order {
		if cut := c.sides[name].Unfinished(finished); len(cut) > 0 {
			return fmt.Errorf("%s: the run was cut short in requests %s; compare points or rounds that it finished, with --points", c.dir, acceptance.Some(cut))
		}
	}
	return nil
}

// samePrompts refuses prompts of one id and different tokens.
func samePrompts(a, b *compared, x, y *acceptance.Side) error {
	for _, id := range slices.Sorted(maps.Keys(x.Prompts)) {
		p, okA := a.prompts[id]
		q, okB := b.prompts[id]
		if y.Prompts[id] != nil && okA && okB && p.Hash != q.Hash {
			return fmt.Errorf("prompt %s has other tokens in %s than in %s; they are no pair", id, a.dir, b.dir)
		}
	}
	return nil
}

// comparisons is what --against prints.
type comparisons struct {
	Run           string                   `json:"run"`
	Against       string                   `json:"against"`
	OnlyInRun     []string                 `json:"only_in_run"` // points without a counterpart
	OnlyInAgainst []string                 `json:"only_in_against"`
	Comparisons   []*acceptance.Comparison `json:"comparisons"`
}

func compareRuns(out io.Writer, dir string, f *statsFlags, asJSON bool) error {
	res, err := compareAll(dir, f)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, res)
	}
	return printComparisons(out, f, res)
}

func compareAll(dir string, f *statsFlags) (*comparisons, error) {
	first, second := "", ""
	if len(f.points) > 0 {
		first, second = f.points[0], f.points[len(f.points)-1]
	}
	if sameDir(dir, f.against) && first == second {
		return nil, errors.New("--against is the run itself; name two points of it with --points A,B")
	}
	a, err := readCompared(dir, first)
	if err != nil {
		return nil, err
	}
	b, err := readCompared(f.against, second)
	if err != nil {
		return nil, err
	}
	res := &comparisons{Run: a.run, Against: b.run, OnlyInRun: []string{}, OnlyInAgainst: []string{}}
	for _, name := range a.order {
		other := name
		if second != "" {
			other = second
		}
		x, y := a.sides[name], b.sides[other]
		if y == nil {
			res.OnlyInRun = append(res.OnlyInRun, name)
			continue
		}
		if err := samePrompts(a, b, x, y); err != nil {
			return nil, err
		}
		c, err := acceptance.PairedBootstrap(x, y, acceptance.Resamples{Number: f.resamples, Seed: f.seed, Confidence: f.confidence})
		if err != nil {
			return nil, fmt.Errorf("%s of %s against %s of %s: %w", name, dir, other, f.against, err)
		}
		res.Comparisons = append(res.Comparisons, c)
	}
	for _, name := range b.order {
		if second == "" && a.sides[name] == nil {
			res.OnlyInAgainst = append(res.OnlyInAgainst, name)
		}
	}
	if len(res.Comparisons) == 0 {
		return nil, fmt.Errorf("%s has the points %s, %s has %s: none is in both; name two with --points A,B", dir, acceptance.Some(a.order), f.against, acceptance.Some(b.order))
	}
	return res, nil
}

func sameDir(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

func printComparisons(out io.Writer, f *statsFlags, res *comparisons) error {
	for i, c := range res.Comparisons {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "a: %s of run %s\nb: %s of run %s\n", c.A, res.Run, c.B, res.Against)
		for _, s := range []struct {
			side  string
			lossy bool
		}{{"a", c.LossyA}, {"b", c.LossyB}} {
			if s.lossy {
				fmt.Fprintf(out, "%s is LOSSY: its rule's output is not the target's\n", s.side)
			}
		}
		if c.Simulated {
			fmt.Fprintf(out, "both simulated: a %s, b %s\n", c.SimulatedA, c.SimulatedB)
		}
		fmt.Fprintf(out, "paired over %d prompts; %d resamples (%s, seed %d); intervals of %s\n", c.Prompts, c.Resamples, c.Generator, c.Seed, f.percent())
		w := table(out)
		fmt.Fprintln(w, "figure\ta\tb\ta - b\tlow\thigh")
		for _, d := range c.Figures {
			name := d.Figure
			if d.Position >= 0 {
				name = fmt.Sprintf("%s[%d]", name, d.Position)
			}
			if d.Defined < c.Resamples {
				name += fmt.Sprintf(" (in %d resamples)", d.Defined)
			}
			format := "%s\t%.4f\t%.4f\t%+.4f\t%+.4f\t%+.4f\n"
			if d.Figure == "decode_tok_s_ratio" {
				name, format = "decode_tok_s, a / b", "%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\n"
			}
			fmt.Fprintf(w, format, name, d.A, d.B, d.Difference, d.Low, d.High)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if c.Note != "" {
			fmt.Fprintln(out, c.Note)
		}
	}
	for _, rest := range []struct {
		run    string
		points []string
	}{{res.Run, res.OnlyInRun}, {res.Against, res.OnlyInAgainst}} {
		if len(rest.points) > 0 {
			fmt.Fprintf(out, "\nonly in run %s: %s\n", rest.run, acceptance.Some(rest.points))
		}
	}
	return nil
}
