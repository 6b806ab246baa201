package experiments

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/acceptance/audit"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/tokenizer"
)

// isServed reports whether a directory is that of a server.
func isServed(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, serveFile))
	return err == nil
}

// RequestTimes are how long a served request waited from its arrival, in
// milliseconds: until a step took it up, until its first token, and until its end.
type RequestTimes struct {
	Request string        `json:"request"`
	Finish  engine.Finish `json:"finish"`
	servedTimes
}

// ServedTimes reads the times of the requests of a server's directory, in order of
// their ends; nil for the directory of a run, which has none.
func ServedTimes(dir string) ([]RequestTimes, error) {
	if !isServed(dir) {
		return nil, nil
	}
	return readLines[RequestTimes](filepath.Join(dir, outputsFile), "output")
}

// openServed reads the directory of a server, and loads its model.
func openServed(dir string, reader *acceptance.Reader) (c *audit.Case, closeCase func() error, err error) {
	path := filepath.Join(dir, serveFile)
	cfg, err := LoadServeConfig(path)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("run directory: %w", err)
	}
	lines, err := readLines[askedLine](filepath.Join(dir, requestsFile), "request")
	if err != nil {
		return nil, nil, err
	}
	sum, err := readSummary(filepath.Join(dir, summaryFile))
	if err != nil {
		return nil, nil, err
	}
	c = &audit.Case{Run: reader.Meta().Run, Records: reader.All, Uncached: !cfg.Engine.PrefixCache, CutShort: sum == nil || sum.Interrupted}
	if has, want := textHash(text), reader.Meta().Provenance["config"]; has != want {
		c.Disagree = append(c.Disagree, fmt.Sprintf("%s has SHA-256 %s; the records are of a configuration with %s", serveFile, has, want))
	}
	s, err := openModel(cfg.experiment())
	if err != nil {
		return nil, nil, err
	}
	lab := s.lab()
	closeCase = func() error { return errors.Join(lab.Close(), s.close()) }
	if err = s.served(c, &cfg, lines); err == nil {
		err = receive(filepath.Join(dir, outputsFile), c)
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeCase())
	}
	run, now := reader.Meta().Provenance, provenance(s, "")
	c.Elsewhere = elsewhere(run, now)
	if c.NoLab = incomparable(run, now); c.NoLab == "" && slices.ContainsFunc(lines, func(l askedLine) bool { return len(l.Prompt) != l.Length }) {
		c.NoLab = "the server did not keep the prompts (record_prompts)"
	}
	if c.NoLab == "" {
		c.Lab = lab
	}
	return c, closeCase, nil
}

// served makes the requests of a server's directory.
func (s *session) served(c *audit.Case, cfg *ServeConfig, lines []askedLine) error {
	c.Requests = map[string]*audit.Request{}
	for i, l := range lines {
		strategy := slices.IndexFunc(cfg.Strategies, func(st ServeStrategy) bool { return st.Drafter == l.Strategy })
		switch {
		case strategy < 0 && l.Strategy != "none":
			return fmt.Errorf("%s, request %d: strategy %q is not one of %s", requestsFile, i+1, l.Strategy, serveFile)
		case c.Requests[l.Request] != nil:
			return fmt.Errorf("%s, request %d: request %q is there twice", requestsFile, i+1, l.Request)
		case l.Length < 1 || l.Length > s.cfg.Context:
			return fmt.Errorf("%s, request %d: a prompt of %d tokens; the context is %d", requestsFile, i+1, l.Length, s.cfg.Context)
		case len(l.Stops) > 0 && s.entry.Tokenizer == nil:
			return fmt.Errorf("%s, request %d: stop strings, and a model without a tokenizer", requestsFile, i+1)
		}
		prompt := l.Prompt
		if prompt == nil {
			prompt = make([]int32, l.Length) // of which only the length is known
		}
		q := &audit.Request{
			ID: l.Request, Prompt: prompt, MaxNew: l.MaxNew, Params: l.Params, Strategy: strconv.Itoa(strategy), Drafter: l.Strategy, K: l.K, Rule: l.Rule,
			Full: cfg.Length.String() == "", Stop: l.Stop, PromptLogits: l.PromptLogits,
		}
		if l.K > 0 {
			q.Simulation = cfg.simulation()
		}
		if len(l.Stops) > 0 {
			q.Until = until(s.entry.Tokenizer, l.Stops, l.SkipSpecial)
		}
		c.Requests[q.ID] = q
	}
	return nil
}

// until makes matchers of stop strings.
func until(t *tokenizer.Tokenizer, stops []string, skipSpecial bool) func() engine.Until {
	return func() engine.Until { return t.NewStops(stops, skipSpecial) }
}
