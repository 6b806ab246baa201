package experiments

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
)

// Audits are the names of the audits, in the order in which they are made.
var Audits = []string{"tokens", "counts", "work"}

// AuditOptions say what Audit does.
type AuditOptions struct {
	// Only lists the audits to make, of Audits; empty makes all.
	Only []string
	// Replay chooses what is replayed.
	Replay audit.Replay
	// Progress is told what is being done; may be nil.
	Progress func(string)
}

// AuditResult is what the audits of a run found.
type AuditResult struct {
	Run string `json:"run"`
	// Verdict is fail if any audit failed, else not checkable if any could
	// not be made, else pass.
	Verdict audit.Outcome `json:"verdict"`
	Tokens  *audit.Report `json:"tokens,omitempty"`
	Counts  *audit.Report `json:"counts,omitempty"`
	Work    *audit.Report `json:"work,omitempty"`
}

// Reports lists the reports that were made, in the order of Audits.
func (r *AuditResult) Reports() []*audit.Report {
	return slices.DeleteFunc([]*audit.Report{r.Tokens, r.Counts, r.Work}, func(p *audit.Report) bool { return p == nil })
}

// Audit makes the audits of a run directory, on the model and backend that its
// configuration names. An error says which file is missing, damaged or of
// another run.
func Audit(ctx context.Context, dir string, o AuditOptions) (res *AuditResult, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	c, closeCase, err := openCase(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeCase()) }()
	c.Replay = o.Replay
	res = &AuditResult{Run: c.Run}
	for _, a := range []struct {
		name string
		make func(context.Context, *audit.Case, func(string)) (*audit.Report, error)
		to   **audit.Report
	}{{"tokens", audit.Tokens, &res.Tokens}, {"counts", audit.Counts, &res.Counts}, {"work", audit.Work, &res.Work}} {
		if len(o.Only) > 0 && !slices.Contains(o.Only, a.name) {
			continue
		}
		if *a.to, err = a.make(ctx, c, func(text string) { o.Progress(a.name + ": " + text) }); err != nil {
			return nil, interrupted(ctx, err)
		}
	}
	res.judge()
	return res, nil
}

// judge makes the verdict that of the reports.
func (r *AuditResult) judge() {
	r.Verdict = audit.Pass
	for _, p := range r.Reports() {
		if p.Verdict == audit.Fail || r.Verdict == audit.Pass {
			r.Verdict = p.Verdict
		}
	}
}

// interrupted returns ErrInterrupted if that is why there is an error.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return err
}

// openCase reads a run directory, and loads its model. The case's records are
// streamed from the files each time.
func openCase(dir string) (c *audit.Case, closeCase func() error, err error) {
	reader, err := acceptance.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	if isServed(dir) {
		return openServed(dir, reader)
	}
	cfg, err := LoadConfig(filepath.Join(dir, "config.yaml"))
	if err != nil {
		return nil, nil, err
	}
	prompts, err := readLines[Prompt](filepath.Join(dir, "prompts.jsonl"), "prompt")
	if err != nil {
		return nil, nil, err
	}
	c = &audit.Case{Run: reader.Meta().Run, Records: reader.All}
	sum, err := readSummary(filepath.Join(dir, "summary.json"))
	if err != nil {
		return nil, nil, err
	}
	c.Claims, c.CutShort = claims(sum)
	if c.Disagree, err = disagree(dir, cfg, prompts, sum, reader.Meta()); err != nil {
		return nil, nil, err
	}
	c.Uncached = !cfg.Engine.PrefixCache
	cfg.PackCache = false // what is audited is read from the model's own files
	s, err := open(cfg, prompts)
	if err != nil {
		return nil, nil, err
	}
	lab := s.lab()
	closeCase = func() error { return errors.Join(lab.Close(), s.close()) }
	c.Requests = s.asked()
	if err := receive(filepath.Join(dir, "outputs.jsonl"), c); err != nil {
		return nil, nil, errors.Join(err, closeCase())
	}
	run, now := reader.Meta().Provenance, provenance(s, "")
	c.Elsewhere = elsewhere(run, now)
	if c.NoLab = incomparable(run, now); c.NoLab == "" {
		c.Lab = lab
	}
	return c, closeCase, nil
}

// lab makes the laboratory of a session.
func (s *session) lab() *Lab {
	return NewLab(LabConfig{
		Model: s.m, Vocab: s.entry.Vocab(), Context: s.cfg.Context,
		Tokens:  Tokens(s.entry.Tokenizer, s.entry.Vocab(), s.entry.Source.Config().EOS),
		Drafter: s.drafterOf,
		Oracle: func() (*model.Model, func() error, error) {
			cfg := s.cfg
			cfg.Backend = "ref"
			o, err := open(cfg, s.prompts)
			if err != nil {
				return nil, nil, err
			}
			return o.m, o.close, nil
		},
	})
}

// drafterOf makes the drafter of a request's strategy, which is an index into
// the configuration's.
func (s *session) drafterOf(r *audit.Request) (engine.Drafter, error) {
	i, err := strconv.Atoi(r.Strategy)
	if err != nil || i < 0 || i >= len(s.cfg.Strategies) {
		return nil, fmt.Errorf("strategy %q is not one of the configuration's %d", r.Strategy, len(s.cfg.Strategies))
	}
	return s.drafter(i)
}

// asked lists what the experiment asks, by request id.
func (s *session) asked() map[string]*audit.Request {
	out := map[string]*audit.Request{}
	points := s.cfg.points()
	var rules []string
	for _, p := range points {
		if !slices.Contains(rules, p.Rule) {
			rules = append(rules, p.Rule)
		}
	}
	for i, rule := range rules {
		s.ask(out, Point{Strategy: -1, Drafter: "none", Rule: rule, Concurrency: 1}, fmt.Sprintf("%s-%d", referenceName, i))
	}
	for round := range s.cfg.Repeats {
		for _, p := range points {
			s.ask(out, p, fmt.Sprintf("%s.r%d", p, round))
		}
	}
	return out
}

// ask adds the requests of all prompts at a point.
func (s *session) ask(to map[string]*audit.Request, p Point, name string) {
	for i, prompt := range s.prompts {
		q := s.request(p, i, name+"/"+prompt.ID)
		to[q.ID] = &audit.Request{
			ID: q.ID, Class: prompt.Class, Prompt: q.Prompt, MaxNew: q.MaxNew, Params: q.Params, Strategy: strconv.Itoa(p.Strategy), Drafter: p.Drafter, K: p.K,
			Rule: p.Rule, Full: p.Length == "", Simulation: p.Simulation, Stop: q.Stop, IgnoreStop: q.IgnoreStop,
		}
	}
}

// receive reads what the client received into the case's requests.
func receive(name string, c *audit.Case) error {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) && c.CutShort {
		return nil
	}
	if err != nil {
		return fmt.Errorf("run directory: %w", err)
	}
	defer f.Close()
	dec := json.NewDecoder(bufio.NewReader(f))
	for n := 1; ; n++ {
		var o output
		err := dec.Decode(&o)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, io.ErrUnexpectedEOF) && c.CutShort:
			return nil // the process was killed while it wrote
		case err != nil:
			return fmt.Errorf("%s, output %d: %w", name, n, err)
		}
		r := c.Requests[o.Request]
		switch {
		case r == nil:
			return fmt.Errorf("%s, output %d: request %q is none that config.yaml and prompts.jsonl ask", name, n, o.Request)
		case r.Ended:
			return fmt.Errorf("%s, output %d: request %s has an output already", name, n, o.Request)
		}
		r.Received, r.Finish, r.Ended = o.IDs, o.Finish, true
	}
}

// elsewhere reports whether a run's times are those of another machine.
func elsewhere(run, now map[string]string) bool {
	return slices.ContainsFunc([]string{"host", "device", "kernels", "threads"}, func(k string) bool { return run[k] != now[k] })
}

// incomparable says why bits of two machines can't be compared, or "".
func incomparable(run, now map[string]string) string {
	for _, key := range []string{"model_hash", "arithmetic"} {
		if run[key] != now[key] {
			return fmt.Sprintf("the run's %s is %q, here it is %q", strings.ReplaceAll(key, "_", " "), run[key], now[key])
		}
	}
	return ""
}

// readLines reads a JSONL file of a run directory.
func readLines[T any](name, what string) ([]T, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	defer f.Close()
	var out []T
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var v T
		switch err := dec.Decode(&v); {
		case errors.Is(err, io.EOF) && len(out) == 0:
			return nil, fmt.Errorf("%s: no %ss", name, what)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("%s, %s %d: %w", name, what, len(out)+1, err)
		}
		out = append(out, v)
	}
}
