package experiments

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/experiments/load"
	"exacta.dev/exacta/experiments/workload"
	"exacta.dev/exacta/internal/disk"
)

// loadRun is a load experiment under way.
type loadRun struct {
	cfg   LoadExperiment
	dir   string
	o     RunOptions
	entry *registry.Entry // nil without a model
	plans map[string]*workload.Plan
	tuned map[string][]load.Tried
}

// RunLoad runs a load experiment and writes its run directory; see package load.
// Targets run one after the other, since they may not fit beside each other; each
// measures all points, in an order that the repeats turn. Cells that a directory
// already has are kept. On interruption the summary of what was finished is returned
// beside ErrInterrupted.
func RunLoad(ctx context.Context, cfg LoadExperiment, o RunOptions) (sum *load.Summary, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	r := &loadRun{cfg: cfg, o: o, plans: map[string]*workload.Plan{}, tuned: map[string][]load.Tried{}}
	if cfg.Model != "" {
		if r.entry, err = registry.Look(cfg.Model); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, r.entry.Close()) }()
	}
	config, err := cfg.resolved()
	if err != nil {
		return nil, err
	}
	if err := r.begin(config); err != nil {
		return nil, err
	}
	tokens, err := r.makePlans()
	if err != nil {
		return nil, err
	}
	sum = &load.Summary{
		Kind: load.Kind, Name: cfg.Name, Dir: r.dir, Provenance: origin(r.o.Version, textHash(config), r.entry), SLO: cfg.SLO, Baseline: cfg.baseline(), Cells: []load.Cell{},
	}
	for _, p := range cfg.points() {
		sum.Points = append(sum.Points, p.Name)
	}
	for i := range cfg.Targets {
		info, runErr := r.target(ctx, &cfg.Targets[i], tokens)
		if info != nil {
			sum.Targets = append(sum.Targets, *info)
		}
		if ctx.Err() != nil {
			sum.Interrupted = true
			break
		}
		if runErr != nil {
			return nil, runErr
		}
	}
	if err := r.assemble(sum); err != nil {
		return nil, err
	}
	err = writeFile(filepath.Join(r.dir, load.SummaryFile), sum)
	if sum.Interrupted {
		err = errors.Join(ErrInterrupted, err)
	}
	return sum, err
}

// begin makes the directory. One that has the same configuration is gone on with.
func (r *loadRun) begin(text []byte) (err error) {
	if r.o.Dir != "" {
		if old, err := os.ReadFile(filepath.Join(r.o.Dir, "config.yaml")); err == nil && bytes.Equal(old, text) {
			r.dir = r.o.Dir
			return nil
		}
	}
	if r.dir, err = makeDir(r.o.Dir, r.cfg.Name); err != nil {
		return err
	}
	for _, d := range []string{load.WorkloadsDir, load.CellsDir, load.TargetsDir} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o755); err != nil {
			return fmt.Errorf("run directory: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "config.yaml"), text, 0o644); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return nil
}

// planName names the plan of a point's repeat.
func planName(point string, repeat int) string { return fmt.Sprintf("%s.r%d", point, repeat) }

// makePlans makes and writes the requests of all points, and returns the length of
// the longest in tokens.
func (r *loadRun) makePlans() (tokens int, err error) {
	for _, p := range r.cfg.points() {
		for n := range r.cfg.Repeats {
			source, arrival, err := r.cfg.load(p)
			if err != nil {
				return 0, err
			}
			plan, err := workload.Make(source, arrival, r.env(n))
			if err != nil {
				return 0, fmt.Errorf("point %s: %w", p.Name, err)
			}
			name := planName(p.Name, n)
			r.plans[name] = plan
			tokens = max(tokens, plan.Longest())
			var text bytes.Buffer
			enc := json.NewEncoder(&text)
			for i := range plan.Sessions {
				if err := enc.Encode(&plan.Sessions[i]); err != nil {
					return 0, err
				}
			}
			if err := os.WriteFile(filepath.Join(r.dir, load.WorkloadsDir, name+".jsonl"), text.Bytes(), 0o644); err != nil {
				return 0, fmt.Errorf("run directory: %w", err)
			}
		}
	}
	return tokens, nil
}

// env is what sources make the nth repeat's requests from.
func (r *loadRun) env(n int) workload.Env {
	e := workload.Env{Seed: r.cfg.Workload.Seed + uint64(n)}
	if r.entry == nil {
		return e
	}
	e.Vocab, e.Prompts = r.entry.Vocab(), r.entry.Prompts
	tok := r.entry.Tokenizer
	if tok == nil {
		return e
	}
	e.Plain = func(id int32) bool { return tok.Known(id) && !tok.IsSpecial(id) }
	e.Encode = func(text string, chat bool) ([]int32, error) {
		encode, err := encoder(Prompts{Chat: chat}, r.entry)
		if err != nil {
			return nil, err
		}
		return encode(text)
	}
	return e
}

// target measures all cells of a target.
func (r *loadRun) target(ctx context.Context, c *LoadTarget, tokens int) (info *load.TargetInfo, err error) {
	var chosen map[string]string
	if len(c.Tune) > 0 {
		if chosen, err = r.tune(ctx, c, tokens); err != nil {
			return nil, err
		}
	}
	r.o.Progress("starting " + c.Name)
	t, err := r.openTarget(ctx, c, chosen, tokens)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	t.Tuned = r.tuned[c.Name]
	points := r.cfg.points()
	for n := range r.cfg.Repeats {
		for i := range points {
			p := points[(i+n)%len(points)].Name
			if err := r.cell(ctx, t, p, n); err != nil {
				return &t.TargetInfo, err
			}
		}
	}
	return &t.TargetInfo, nil
}

// cell measures a point's repeat at a target, unless it is there already.
func (r *loadRun) cell(ctx context.Context, t *target, point string, n int) error {
	c := load.Cell{Target: t.Name, Point: point, Repeat: n, Plan: r.plans[planName(point, n)].Hash(), Started: time.Now().UTC()}
	dir := filepath.Join(r.dir, load.CellsDir, c.Name())
	if _, err := os.Stat(filepath.Join(dir, load.CellFile)); err == nil {
		return nil
	}
	res, err := r.put(ctx, t, r.plans[planName(point, n)], c.Name())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	var text bytes.Buffer
	if err := load.WriteRows(&text, res.Rows); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, load.RequestsFile), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	c.Fill(res, r.plans[planName(point, n)].Lanes, r.cfg.SLO)
	return writeFile(filepath.Join(dir, load.CellFile), &c)
}

// put puts a plan on a target.
func (r *loadRun) put(ctx context.Context, t *target, p *workload.Plan, name string) (*load.Result, error) {
	return load.Run(ctx, load.Options{
		Client: t.client, Dialect: t.dialect, Model: t.Model, Extra: t.body, Plan: p,
		Warmup: r.cfg.Measure.Warmup, Seconds: r.cfg.Measure.Seconds, IdleCap: time.Duration(r.cfg.Measure.IdleCapSeconds * float64(time.Second)),
		Progress: func(done, of int) { r.o.Progress(fmt.Sprintf("%s: %d of %d requests", name, done, of)) },
	})
}

// tune tries every combination of a server's settings on the first point, and
// returns the one with the most output tokens per second.
func (r *loadRun) tune(ctx context.Context, c *LoadTarget, tokens int) (map[string]string, error) {
	var best *load.Tried
	all := []load.Tried{}
	for _, settings := range combinations(c.Tune) {
		r.o.Progress(fmt.Sprintf("tuning %s: %v", c.Name, settings))
		tried := load.Tried{Settings: settings, Resident: -1, KVBytes: -1}
		if err := r.try(ctx, c, &tried, tokens); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			tried.Error = oneLine(err.Error())
		}
		all = append(all, tried)
	}
	for i := range all {
		if all[i].Error == "" && (best == nil || all[i].OutTokS > best.OutTokS) {
			best = &all[i]
		}
	}
	if best == nil {
		return nil, fmt.Errorf("target %s: none of %d settings worked; the first: %s", c.Name, len(all), all[0].Error)
	}
	best.Chosen = true
	r.tuned[c.Name] = all
	return best.Settings, nil
}

// try measures one setting.
func (r *loadRun) try(ctx context.Context, c *LoadTarget, tried *load.Tried, tokens int) (err error) {
	t, err := r.openTarget(ctx, c, tried.Settings, tokens)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.close()) }()
	p := r.plans[planName(r.cfg.points()[0].Name, 0)]
	res, err := r.put(ctx, t, p, "tuning "+c.Name)
	if err != nil {
		return err
	}
	var cell load.Cell
	cell.Fill(res, p.Lanes, nil)
	tried.OutTokS, tried.Resident = cell.InWindow.OutTokS, cell.InWindow.Decoding
	_, _ = fmt.Sscan(t.Claims["kv_bytes"], &tried.KVBytes) // -1 where it isn't told
	if cell.InWindow.Failed > 0 {
		return fmt.Errorf("%d requests failed; the first: %s", cell.InWindow.Failed, cell.FirstErr)
	}
	return nil
}

// writeFile writes a value as JSON.
func writeFile(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.WriteWhole(path, append(text, '\n')); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	return nil
}

// assemble works lines and comparisons out of the cells that the directory has, and
// of the records of targets in this process.
func (r *loadRun) assemble(sum *load.Summary) error {
	cells := map[string][]load.Repeat{} // by target and point
	for _, t := range r.cfg.Targets {
		for _, p := range r.cfg.points() {
			for n := range r.cfg.Repeats {
				rep, err := readRepeat(filepath.Join(r.dir, load.CellsDir, load.CellName(t.Name, p.Name, n)))
				if errors.Is(err, os.ErrNotExist) {
					continue
				} else if err != nil {
					return err
				}
				cells[t.Name+"."+p.Name] = append(cells[t.Name+"."+p.Name], *rep)
			}
		}
	}
	if err := r.engines(sum, cells); err != nil {
		return err
	}
	lines := map[string]load.Line{}
	for _, p := range r.cfg.points() {
		for _, t := range r.cfg.Targets {
			key := t.Name + "." + p.Name
			if len(cells[key]) == 0 {
				continue
			}
			lines[key] = load.NewLine(r.cfg.SLO, cells[key])
			sum.Lines = append(sum.Lines, lines[key])
			for _, rep := range cells[key] {
				sum.Cells = append(sum.Cells, rep.Cell)
			}
		}
	}
	for _, l := range sum.Lines {
		base := sum.Baseline + "." + l.Point
		if l.Target == sum.Baseline || len(cells[base]) == 0 {
			continue
		}
		c := load.Compare(l, lines[base], cells[l.Target+"."+l.Point], cells[base])
		c.Unfair, c.Unknown = load.Fairness(sum.Target(l.Target), sum.Target(sum.Baseline), r.cfg.Varies)
		c.Fair = len(c.Unfair) == 0
		sum.Comparisons = append(sum.Comparisons, c)
	}
	return nil
}

// readRepeat reads a cell's directory.
func readRepeat(dir string) (*load.Repeat, error) {
	text, err := os.ReadFile(filepath.Join(dir, load.CellFile))
	if err != nil {
		return nil, err
	}
	var rep load.Repeat
	if err := json.Unmarshal(text, &rep.Cell); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, load.CellFile), err)
	}
	rep.Rows, err = load.ReadRowsFile(filepath.Join(dir, load.RequestsFile))
	return &rep, err
}

// engines adds to the cells of targets with records where their time went.
func (r *loadRun) engines(sum *load.Summary, cells map[string][]load.Repeat) error {
	for _, t := range sum.Targets {
		if t.Records == "" {
			continue
		}
		dirs, err := filepath.Glob(filepath.Join(r.dir, load.TargetsDir, t.Name, "serve-*"))
		if err != nil {
			return err
		}
		slices.Sort(dirs)
		for _, p := range r.cfg.points() {
			for i := range cells[t.Name+"."+p.Name] {
				rep := &cells[t.Name+"."+p.Name][i]
				e, err := engineShares(dirs, rep)
				if err != nil {
					return err
				}
				rep.Cell.Engine = e
				if e != nil {
					sum.Simulated, sum.Lossy = sum.Simulated || e.Simulated, sum.Lossy || e.Lossy
				}
			}
		}
	}
	return nil
}
