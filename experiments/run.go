package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
)

// ErrInterrupted says that a run was stopped; what was recorded is kept.
var ErrInterrupted = errors.New("interrupted")

// RunOptions are the surroundings of a run.
type RunOptions struct {
	// Dir is the run directory; empty makes runs/NAME-TIME.
	Dir string
	// Version of the program, for provenance.
	Version string
	// Progress is told what is being done; may be nil.
	Progress func(text string)
	// Warn is told what drafters report and the run survives; may be nil.
	Warn func(text string)
	// Trace, if not empty, is the file for the run's timeline: see engine.Timeline.
	Trace string
}

// mostWarnings bounds those that are kept.
const mostWarnings = 100

// reference is the point that all outputs are compared with: plain decoding of
// one sequence. It also warms the machine up and is not timed.
const referenceName = "reference"

// runner is a run under way.
type runner struct {
	*session
	dir      string
	progress func(string)
	writer   *acceptance.Writer
	refs     map[string]*acceptance.Trace // by prompt id
	out      *json.Encoder
	outputs  *os.File
	points   []Point
	results  []*pointState
	classes  map[string]string // by prompt id
	// Steps and sequences are numbered through the run, over all engines.
	steps, seqs int64
}

// pointState gathers the rounds of a point.
type pointState struct {
	stats     acceptance.Stats
	seconds   []float64 // wall time by round
	tokens    []int     // emitted by round
	decode    []float64 // tokens per second in steps without prefill, by round
	fresh     acceptance.Fresh
	freshTokS []float64 // tokens per second of fresh steps, by round
	exact     bool
	firstDiff string
	classes   map[string]*classState
}

// classState gathers the rounds of a point over the prompts of one class, where one
// sequence runs at a time, so that steps belong to prompts.
type classState struct {
	stats  acceptance.Stats
	ns     []int64 // of all its steps, by round
	tokens []int64 // emitted, by round
}

// class returns the state of a prompt's class in the current round.
func (s *pointState) class(name string) *classState {
	c := s.classes[name]
	if c == nil {
		c = &classState{}
		s.classes[name] = c
	}
	for len(c.ns) <= len(s.seconds) {
		c.ns, c.tokens = append(c.ns, 0), append(c.tokens, 0)
	}
	return c
}

// Run runs an experiment and writes its run directory. On interruption the
// summary of what was measured is returned beside ErrInterrupted.
func Run(ctx context.Context, cfg Config, o RunOptions) (sum *Summary, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	o.Progress("loading " + cfg.Model)
	s, err := open(cfg, nil)
	if err != nil {
		return nil, err
	}
	var warnings []string
	s.warn = func(text string) {
		if len(warnings) < mostWarnings && !slices.Contains(warnings, text) {
			warnings = append(warnings, text)
			if o.Warn != nil {
				o.Warn(text)
			}
		}
	}
	for _, note := range append(s.entry.Notes, s.packing.Note()) {
		if note != "" {
			s.warn(note)
		}
	}
	if o.Trace != "" {
		if s.timeline, err = engine.NewTimeline(s.be); err != nil {
			return nil, errors.Join(err, s.close())
		}
		defer func() { err = errors.Join(err, WriteTimeline(o.Trace, s.timeline)) }()
	}
	r := &runner{session: s, progress: o.Progress, refs: map[string]*acceptance.Trace{}, points: cfg.points()}
	r.classes = map[string]string{}
	for _, p := range s.prompts {
		r.classes[p.ID] = p.Class
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if r.dir, err = makeDir(o.Dir, cfg.Name); err != nil {
		return nil, err
	}
	sum = &Summary{Name: cfg.Name, Dir: r.dir, Provenance: provenance(s, o.Version), Prompts: len(s.prompts), Simulated: r.simulates(), Lossy: len(r.cfg.lossy()) > 0}
	if err := r.begin(sum); err != nil {
		return nil, err
	}
	runErr := r.measure(ctx)
	runErr = errors.Join(runErr, r.writer.Close(), r.outputs.Close())
	if runErr != nil && !errors.Is(runErr, ErrInterrupted) {
		return nil, runErr
	}
	sum.Interrupted = runErr != nil
	sum.Runs, sum.Warnings = r.table(), warnings
	return sum, errors.Join(runErr, sum.write(r.dir))
}

func makeDir(dir, name string) (string, error) {
	if dir == "" {
		dir = filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405"))
	}
	if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err == nil {
		return "", fmt.Errorf("run directory: %s already holds a run; give another", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("run directory: %w", err)
	}
	return dir, nil
}

// begin writes what is known before the first step.
func (r *runner) begin(sum *Summary) error {
	text, err := yaml.Marshal(r.cfg)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "config.yaml"), text, 0o644); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	prompts, err := os.Create(filepath.Join(r.dir, "prompts.jsonl"))
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	enc := json.NewEncoder(prompts)
	for _, p := range r.prompts {
		if err := enc.Encode(p); err != nil {
			return errors.Join(err, prompts.Close())
		}
	}
	if err := prompts.Close(); err != nil {
		return err
	}
	if r.outputs, err = os.Create(filepath.Join(r.dir, "outputs.jsonl")); err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	r.out = json.NewEncoder(r.outputs)
	r.out.SetEscapeHTML(false)
	id := filepath.Base(r.dir)
	r.writer, err = acceptance.NewWriter(r.dir, acceptance.Meta{Run: id, Provenance: sum.Provenance})
	return err
}

// measure runs the reference, then the rounds.
func (r *runner) measure(ctx context.Context) error {
	r.results = make([]*pointState, len(r.points))
	for i := range r.results {
		r.results[i] = &pointState{exact: true, classes: map[string]*classState{}}
	}
	for i, rule := range r.rules() {
		r.progress(fmt.Sprintf("reference %s: plain decoding of one sequence at a time", rule))
		p := Point{Strategy: -1, Drafter: "none", Rule: rule, Concurrency: 1}
		if err := r.point(ctx, p, fmt.Sprintf("%s-%d", referenceName, i), nil); err != nil {
			return err
		}
	}
	for round := range r.cfg.Repeats {
		for n := range r.points {
			// Another point leads each round.
			i := (n + round) % len(r.points)
			r.progress(fmt.Sprintf("round %d of %d: %s", round+1, r.cfg.Repeats, r.points[i]))
			if err := r.point(ctx, r.points[i], fmt.Sprintf("%s.r%d", r.points[i], round), r.results[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// rules lists the rules whose reference runs are needed.
func (r *runner) rules() []string {
	var out []string
	for _, p := range r.points {
		if !slices.Contains(out, p.Rule) {
			out = append(out, p.Rule)
		}
	}
	return out
}

// output is a line of outputs.jsonl.
type output struct {
	Request string        `json:"request"`
	Prompt  string        `json:"prompt"`
	IDs     []int32       `json:"output_ids"`
	Text    string        `json:"text,omitempty"`
	Finish  engine.Finish `json:"finish"`
	servedTimes
}

// point runs all prompts once at a point. state is nil for a reference.
func (r *runner) point(ctx context.Context, p Point, name string, state *pointState) error {
	var traces acceptance.Collector
	var round acceptance.Stats
	var fresh acceptance.Fresh
	firstStep, firstSeq := r.steps, r.seqs
	rec := engine.RecorderFunc(func(rec *engine.Record) error {
		rec.Step += firstStep
		rec.Sequence += firstSeq
		r.steps, r.seqs = max(r.steps, rec.Step+1), max(r.seqs, rec.Sequence+1)
		round.Add(rec)
		fresh.Add(rec)
		if state != nil {
			state.stats.Add(rec)
			state.fresh.Add(rec)
			if p.Concurrency == 1 {
				c := state.class(r.classOf(rec.Request))
				c.stats.Add(rec)
				c.ns[len(state.seconds)] += rec.TotalNs
				c.tokens[len(state.seconds)] += int64(rec.Emitted())
			}
		}
		return errors.Join(traces.Add(rec), r.writer.Record(rec))
	})
	e, err := r.engine(p, rec)
	if err != nil {
		return err
	}
	defer e.Close()
	start := time.Now()
	seqs := make([]*engine.Sequence, len(r.prompts))
	for i, prompt := range r.prompts {
		if seqs[i], err = e.Submit(r.request(p, i, name+"/"+prompt.ID)); err != nil {
			return err
		}
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	if ctx.Err() != nil {
		return fmt.Errorf("%w during %s; records of %d steps are in %s", ErrInterrupted, name, round.Steps, r.dir)
	}
	for i, s := range seqs {
		if s.Err() != nil {
			return s.Err()
		}
		if err := r.finish(p, r.prompts[i].ID, s, traces.Traces[s.Request().ID], state); err != nil {
			return err
		}
	}
	if state != nil {
		state.seconds = append(state.seconds, took)
		state.tokens = append(state.tokens, int(round.Emitted))
		state.decode = append(state.decode, round.Summary().DecodeTokS)
		state.freshTokS = append(state.freshTokS, fresh.TokS())
	}
	return nil
}

// classOf is the class of a request's prompt.
func (r *runner) classOf(request string) string {
	_, id := acceptance.SplitRequest(request)
	return r.classes[id]
}

// finish stores an output and compares it with the reference.
func (r *runner) finish(p Point, prompt string, s *engine.Sequence, t *acceptance.Trace, state *pointState) error {
	o := output{Request: s.Request().ID, Prompt: prompt, IDs: s.Output(), Finish: s.Finish()}
	if r.entry.Tokenizer != nil {
		o.Text = r.entry.Tokenizer.Decode(s.Output(), true)
	}
	if err := r.out.Encode(o); err != nil {
		return fmt.Errorf("outputs.jsonl: %w", err)
	}
	key := p.Rule + "/" + prompt
	if state == nil {
		r.refs[key] = t
		return nil
	}
	if p.Simulation != "" {
		return nil // its text means nothing
	}
	if d := acceptance.Compare(o.Request, t, r.refs[key]); d != nil && state.exact {
		state.exact, state.firstDiff = false, d.String()
	}
	return nil
}
