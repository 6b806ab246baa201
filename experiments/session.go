package experiments

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// session is an experiment's model, loaded, with its prompts.
type session struct {
	cfg     Config
	entry   *registry.Entry
	be      kernels.Backend
	m       *model.Model
	prompts []Prompt
	packing Packing
	warn    func(text string)   // of drafters; may be nil
	tokens  *grammar.Vocabulary // made when a grammar needs it
	// timeline of all engines; may be nil.
	timeline *engine.Timeline
}

// open loads what a configuration names. prompts, if not nil, are used instead
// of reading those that it names.
func open(cfg Config, prompts []Prompt) (*session, error) {
	s := &session{cfg: cfg, prompts: prompts}
	return s.opened(s.fit)
}

// opened opens the model, has fit choose the context, and loads. On an error there
// is no session.
func (s *session) opened(fit func() error) (_ *session, err error) {
	if s.entry, err = registry.Open(s.cfg.Model); err == nil {
		err = fit()
	}
	if err == nil {
		err = s.load()
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// fit reads the prompts, unless there are some, and takes a context that they and
// their outputs fit into.
func (s *session) fit() (err error) {
	if s.prompts == nil {
		if s.prompts, err = LoadPrompts(s.cfg.Prompts, s.entry); err != nil {
			return err
		}
	}
	longest := 0
	for _, p := range s.prompts {
		longest = max(longest, len(p.IDs))
	}
	if s.cfg.Context == 0 {
		s.cfg.Context = min(longest+s.cfg.MaxNew, s.entry.Source.Config().MaxPositions)
	}
	for _, p := range s.prompts {
		if len(p.IDs) >= s.cfg.Context {
			return fmt.Errorf("prompt %s has %d tokens; the context of %d leaves no room to generate", p.ID, len(p.IDs), s.cfg.Context)
		}
	}
	return nil
}

// load opens the backend and loads the model.
func (s *session) load() (err error) {
	if s.be, err = OpenBackend(BackendChoice{Name: s.cfg.Backend, Threads: s.cfg.Threads, Kernels: s.cfg.Kernels, GPUMemory: s.cfg.GPUMemory}); err != nil {
		return err
	}
	s.m, s.packing, err = LoadModel(s.be, s.entry, model.Options{MaxTokens: s.cfg.Context, MTP: true}, s.cfg.PackCache)
	return err
}

func (s *session) close() error {
	var err error
	if s.be != nil {
		err = s.be.Close()
	}
	if s.entry != nil {
		err = errors.Join(err, s.entry.Close())
	}
	return err
}

// points lists what to measure: for each concurrency the plain baseline, then
// each strategy with each k.
func (c *Config) points() []Point {
	var out []Point
	base := named(c.Rule)
	for _, n := range c.Concurrency {
		out = append(out, Point{Strategy: -1, Drafter: "none", Rule: base, Concurrency: n})
		for i, s := range c.Strategies {
			rule := base
			if s.Rule != "" {
				rule = named(s.Rule)
			}
			if s.Drafter == "none" && rule == base {
				continue // the baseline
			}
			ks := s.K
			if s.Drafter == "none" {
				ks = []int{0}
			}
			for _, k := range ks {
				p := Point{Strategy: i, Drafter: s.Drafter, K: k, Rule: rule, Concurrency: n, Length: s.Length.String(), Settings: s.settings()}
				if s.Simulate != nil {
					spec, _ := s.Simulate.Spec() // validated
					p.Simulation = spec.String()
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// named is a rule's name as records have it: of its settings, those that are not
// the defaults.
func named(rule string) string {
	if r, err := verify.New(rule); err == nil { // validated
		return r.Name()
	}
	return rule
}

// lossy lists the lossy rules among those of the points.
func (c *Config) lossy() (names []string) {
	for _, p := range c.points() {
		if rule, err := p.rule(); err == nil && engine.Lossy(rule) && !slices.Contains(names, p.Rule) {
			names = append(names, p.Rule)
		}
	}
	return names
}

// engine makes the engine of a point.
func (s *session) engine(p Point, rec engine.Recorder) (*engine.Engine, error) {
	rule, err := p.rule()
	if err != nil {
		return nil, err
	}
	drafters := map[string]engine.Drafter{}
	var lengths engine.Lengths
	if p.Drafter != "none" {
		lengths = s.cfg.Strategies[p.Strategy].Length.New()
		d, err := s.drafter(p.Strategy)
		if err != nil {
			return nil, err
		}
		drafters[p.Drafter] = d
	}
	ec := s.cfg.Engine
	if s.tokens == nil && s.cfg.Sampling.Grammar != "" {
		s.tokens = Tokens(s.entry.Tokenizer, s.entry.Vocab(), s.entry.Source.Config().EOS)
	}
	return engine.New(s.m, engine.Config{
		MaxTokens: s.cfg.Context, MaxSequences: p.Concurrency, MaxDraft: max(1, p.K), Vocab: s.entry.Vocab(), Tokens: s.tokens,
		Pages: ec.Pages, BatchTokens: ec.BatchTokens, Chunk: ec.Chunk, PrefixCache: ec.PrefixCache, Lengths: lengths,
		Policy: ec.Policy, PrefillShare: ec.PrefillShare, ExpectedOutput: ec.ExpectedOutput, Loop: ec.Loop != "off",
		Timeline: s.timeline,
	}, drafters, rule, rec, engine.Listener{})
}

// drafter makes the drafter of a strategy of the configuration.
func (s *session) drafter(i int) (engine.Drafter, error) {
	st, err := s.cfg.Strategies[i].New()
	if err != nil {
		return nil, err
	}
	return st.Provision(draft.Env{Backend: s.be, Model: s.m, Vocab: s.entry.Vocab(), Tokenizer: s.entry.Tokenizer, Warn: s.warn})
}

// rule makes the acceptance rule of a point, simulated where the point is.
func (p Point) rule() (engine.Verifier, error) {
	rule, err := verify.New(p.Rule)
	if err != nil || p.Simulation == "" {
		return rule, err
	}
	spec, err := verify.ParseSimulation(p.Simulation)
	if err != nil {
		return nil, err
	}
	return verify.Simulate(rule, spec, p.K)
}

// request builds the request for prompt i at a point.
func (s *session) request(p Point, i int, id string) engine.Request {
	drafter := p.Drafter
	if drafter == "none" {
		drafter = ""
	}
	return engine.Request{
		ID: id, Prompt: s.prompts[i].IDs, MaxNew: s.cfg.MaxNew, Params: s.cfg.Sampling.Params(i),
		Drafter: drafter, K: p.K, Stop: s.entry.Source.Config().EOS, IgnoreStop: s.cfg.IgnoreEOS,
	}
}
