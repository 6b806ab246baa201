package experiments

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"exacta.dev/exacta/acceptance"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/server"
	"exacta.dev/exacta/verify"
)

// verifier is engine.Verifier, for signatures.
type verifier = engine.Verifier

// longestContext is the context of servers whose configuration gives none.
const longestContext = 8192

// ServeOptions are the surroundings of a server.
type ServeOptions struct {
	Version string
	Logger  *slog.Logger
	Tracer  trace.Tracer // nil traces nothing
}

// Served is a model that is being served.
type Served struct {
	*server.Server
	// Dir is the directory of the records; "" without.
	Dir string

	session *session
	log     *serveLog // nil without records
}

// Serve loads a model and makes its server. Close it.
func Serve(cfg ServeConfig, o ServeOptions) (s *Served, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s = &Served{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
			s = nil
		}
	}()
	if s.session, err = openServe(&cfg); err != nil {
		return s, err
	}
	s.session.warn = func(text string) { o.Logger.Warn(text) }
	for _, note := range s.session.entry.Notes {
		o.Logger.Info(note)
	}
	if note := s.session.packing.Note(); note != "" {
		o.Logger.Info(note)
	}
	metrics := prometheus.NewRegistry()
	sc, err := s.serverConfig(&cfg, o, metrics)
	if err != nil {
		return s, err
	}
	if cfg.Records != "" {
		if s.log, err = newServeLog(s.session, &cfg, o, metrics); err != nil {
			return s, err
		}
		s.Dir, sc.Log = s.log.dir, s.log
	}
	s.Server, err = server.New(sc)
	return s, err
}

// openServe loads the model of a server's configuration, and fills in what follows
// from it.
func openServe(cfg *ServeConfig) (*session, error) {
	s, err := openModel(cfg.experiment())
	if err != nil {
		return nil, err
	}
	if len(cfg.Strategies) == 0 {
		names := []string{"ngram", "suffix"}
		switch {
		case s.entry.Source.Config().MTPLayers > 0:
			names = append([]string{"mtp"}, names...)
		case model.HasDSpark(s.entry.Source):
			names = append([]string{"dspark"}, names...)
		}
		for _, name := range names {
			cfg.Strategies = append(cfg.Strategies, ServeStrategy{Drafter: name, K: cfg.K})
		}
		s.cfg.Strategies = cfg.experiment().Strategies
	}
	cfg.Context = s.cfg.Context
	if cfg.Name == "" {
		cfg.Name = cfg.Model
	}
	return s, nil
}

// openModel loads a model without prompts.
func openModel(cfg Config) (*session, error) {
	s := &session{cfg: cfg}
	return s.opened(func() error {
		if s.cfg.Context == 0 {
			s.cfg.Context = min(longestContext, s.entry.Source.Config().MaxPositions)
		}
		return nil
	})
}

// serverConfig makes the server's configuration.
func (s *Served) serverConfig(cfg *ServeConfig, o ServeOptions, metrics *prometheus.Registry) (c server.Config, err error) {
	entry := s.session.entry
	defaults, err := entry.Sampling()
	if err != nil {
		return c, err
	}
	templates, err := s.templates(cfg.ChatTemplate)
	if err != nil {
		return c, err
	}
	eos := entry.Source.Config().EOS
	first := cfg.strategy()
	c = server.Config{
		Model: server.Model{
			Name: cfg.Name, Tokenizer: entry.Tokenizer, Chat: templates, EOS: eos,
			Tokens: Tokens(entry.Tokenizer, entry.Vocab(), eos), Vocab: entry.Vocab(), Defaults: defaults,
		},
		Rule: cfg.newRule, Default: server.Speculation{Strategy: first.Drafter, K: first.K, Rule: cfg.Rule}, Simulation: cfg.simulation(),
		Limits: server.Limits{
			Body: int64(cfg.Limits.BodyBytes), Depth: cfg.Limits.Depth, Prompts: cfg.Limits.Prompts, Choices: cfg.Limits.Choices, Stops: cfg.Limits.Stops,
			Open: cfg.Limits.Open, NewTokens: cfg.Limits.NewTokens, Buffer: cfg.Limits.BufferSteps, Write: time.Duration(cfg.Limits.WriteSeconds) * time.Second,
		},
		PromptLogs: cfg.PromptLogProbs, ShareCache: cfg.ShareCache, Origins: cfg.Origins, Pprof: cfg.Pprof, Version: o.Version,
		Logger: o.Logger, LogText: cfg.LogText, Metrics: metrics, Tracer: o.Tracer,
		Open: func(l engine.Listener) (*engine.Engine, error) { return s.engine(cfg, l) },
	}
	for _, k := range cfg.Keys {
		sum, err := k.hash()
		if err != nil {
			return c, err
		}
		c.Keys = append(c.Keys, server.Key{Name: k.Name, Hash: sum, InFlight: k.InFlight, TokensPerMinute: k.TokensPerMinute})
	}
	return c, nil
}

// templates are the chat templates of the model, or those that the configuration
// names; nil where there are none.
func (s *Served) templates(name string) (*chat.Set, error) {
	entry := s.session.entry
	if strings.HasSuffix(name, ".jinja") {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("chat_template: %w", err)
		}
		tokens, err := entry.SpecialTokens()
		if err != nil {
			return nil, err
		}
		t, err := chat.Parse(name, string(text), tokens)
		if err != nil {
			return nil, err
		}
		return chat.NewSet(t), nil
	}
	set, err := entry.Chat()
	if errors.Is(err, chat.ErrNone) && name == "" {
		return nil, nil
	}
	if err != nil || name == "" {
		return set, err
	}
	t, err := set.Pick(name, false)
	if err != nil {
		return nil, err
	}
	return chat.NewSet(t), nil
}

// engine makes the server's engine, with the drafters of all strategies.
func (s *Served) engine(cfg *ServeConfig, l engine.Listener) (*engine.Engine, error) {
	drafters := map[string]engine.Drafter{}
	for i, st := range s.session.cfg.Strategies {
		if st.Drafter == "none" {
			continue
		}
		d, err := s.session.drafter(i)
		if err != nil {
			return nil, err
		}
		drafters[st.Drafter] = d
	}
	rule, err := verify.New(cfg.Rule)
	if err != nil {
		return nil, err
	}
	var rec engine.Recorder
	if s.log != nil {
		rec = s.log
	}
	ec := cfg.Engine
	return engine.New(s.session.m, engine.Config{
		MaxTokens: cfg.Context, MaxSequences: cfg.Sequences, MaxDraft: cfg.MaxK, Vocab: s.session.entry.Vocab(),
		Pages: ec.Pages, BatchTokens: ec.BatchTokens, Chunk: ec.Chunk, PrefixCache: ec.PrefixCache,
		Policy: ec.Policy, PrefillShare: ec.PrefillShare, ExpectedOutput: ec.ExpectedOutput, Loop: ec.Loop != "off",
		Lengths: cfg.Length.New(), PromptLogits: cfg.PromptLogProbs,
	}, drafters, rule, rec, l)
}

// Close ends the server, cancels what runs, and writes the end of the log.
func (s *Served) Close() error {
	var errs []error
	if s.Server != nil {
		errs = append(errs, s.Server.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.close())
	}
	if s.session != nil {
		errs = append(errs, s.session.close())
	}
	return errors.Join(errs...)
}

// newServeLog makes the directory of a start and its files.
func newServeLog(s *session, cfg *ServeConfig, o ServeOptions, metrics *prometheus.Registry) (l *serveLog, err error) {
	l = &serveLog{dir: serveDir(cfg.Records, time.Now()), prompts: cfg.RecordPrompts, logger: o.Logger}
	l.lost = prometheus.NewCounter(prometheus.CounterOpts{Name: "exacta_records_lost_total", Help: "Records and request lines that could not be written."})
	metrics.MustRegister(l.lost)
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	public := cfg.public()
	text, err := yaml.Marshal(public)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(l.dir, serveFile), text, 0o644); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	l.provenance = provenance(s, o.Version)
	l.provenance["config"] = textHash(text)
	l.simulated = cfg.Simulate != nil
	for _, f := range []struct {
		name string
		to   **lineFile
	}{{requestsFile, &l.requests}, {outputsFile, &l.outputs}} {
		if *f.to, err = createLines(filepath.Join(l.dir, f.name)); err != nil {
			return nil, errors.Join(fmt.Errorf("records: %w", err), l.close())
		}
	}
	l.writer, err = acceptance.NewWriter(l.dir, acceptance.Meta{Run: filepath.Base(l.dir), Provenance: l.provenance})
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}
