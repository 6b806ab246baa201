package experiments

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// KeyError is a value out of range.
type KeyError struct {
	Key  string // as a path: strategies[1].k
	Want string
}

// Error implements error.
func (e *KeyError) Error() string { return e.Key + ": " + e.Want }

func bad(key, format string, args ...any) error {
	return &KeyError{Key: key, Want: fmt.Sprintf(format, args...)}
}

// Validate checks ranges and names. Errors are KeyErrors.
func (c *Config) Validate() error {
	switch {
	case c.Name == "" || strings.ContainsAny(c.Name, "/\\ \t\n"):
		return bad("name", "%q is not a name for a directory", c.Name)
	case c.Model == "":
		return bad("model", "is empty; give %s", registry.Names)
	case !slices.Contains(Backends, c.Backend):
		return bad("backend", "%q is not known; use one of %v", c.Backend, Backends)
	case c.Threads < 0 || c.Threads > 1024:
		return bad("threads", "%d is out of range 0..1024", c.Threads)
	case validGPUMemory(c.GPUMemory, c.Backend) != "":
		return bad("gpu_memory", "%s", validGPUMemory(c.GPUMemory, c.Backend))
	case c.PackCache && c.Backend != "cpu":
		return bad("pack_cache", "is for backend cpu, not %s", c.Backend)
	case c.Context < 0 || c.Context > 1<<24:
		return bad("context", "%d is out of range 0..%d", c.Context, 1<<24)
	case c.MaxNew < 1 || c.MaxNew > 1<<20:
		return bad("max_new", "%d is out of range 1..%d", c.MaxNew, 1<<20)
	case c.Repeats < 1 || c.Repeats > 1000:
		return bad("repeats", "%d is out of range 1..1000", c.Repeats)
	case len(c.Strategies) == 0:
		return bad("strategies", "is empty; name at least one drafter")
	case len(c.Concurrency) == 0:
		return bad("concurrency", "is empty")
	}
	if err := c.Engine.validate(); err != nil {
		return err
	}
	if err := c.Prompts.validate("prompts"); err != nil {
		return err
	}
	return c.validateLists()
}

// validate checks the engine's settings. Errors are KeyErrors.
func (c EngineConfig) validate() error {
	switch {
	case c.Pages < 0 || c.Pages > 1<<24:
		return bad("engine.pages", "%d is out of range 0..%d", c.Pages, 1<<24)
	case c.BatchTokens < 0 || c.BatchTokens > 1<<20:
		return bad("engine.batch_tokens", "%d is out of range 0..%d", c.BatchTokens, 1<<20)
	case c.Chunk < 0 || c.Chunk > 1<<20:
		return bad("engine.chunk", "%d is out of range 0..%d", c.Chunk, 1<<20)
	case c.Policy != "" && !slices.Contains(sched.Policies(), c.Policy):
		return bad("engine.policy", "%q is not known; use one of %v", c.Policy, sched.Policies())
	case c.PrefillShare < 0 || c.PrefillShare > 100:
		return bad("engine.prefill_share", "%d is out of range 0..100", c.PrefillShare)
	case c.Loop != "" && !slices.Contains(Loops, c.Loop):
		return bad("engine.loop", "%q is not known; use one of %v", c.Loop, Loops)
	case c.ExpectedOutput < -1 || c.ExpectedOutput > 1<<20:
		return bad("engine.expected_output", "%d is out of range -1..%d", c.ExpectedOutput, 1<<20)
	}
	return nil
}

// validate checks a set of prompts, or the sets in it.
func (p *Prompts) validate(key string) error {
	switch {
	case len(p.Sets) > 0 && (p.File != "" || len(p.Classes) > 0 || p.Limit != 0 || p.MaxTokens != 0 || p.Kind != "" || p.Chat):
		return bad(key+".sets", "are there beside other keys; say of each set what it is")
	case p.Limit < 0 || p.Limit > 1<<20:
		return bad(key+".limit", "%d is out of range 0..%d", p.Limit, 1<<20)
	case p.MaxTokens < 0 || p.MaxTokens > 1<<20:
		return bad(key+".max_tokens", "%d is out of range 0..%d", p.MaxTokens, 1<<20)
	case !slices.Contains([]string{"", kindText, kindRepetitive, kindRandom}, p.Kind):
		return bad(key+".kind", "%q is not known; it is text, repetitive or random", p.Kind)
	case p.Kind == kindRandom && (p.File != "" || len(p.Classes) > 0):
		return bad(key+".kind", "random prompts have no file and no classes")
	case p.Chat && (p.Kind == kindRandom || p.Kind == kindRepetitive):
		return bad(key+".chat", "is for prompts of kind text, not %s", p.Kind)
	case p.Chat && p.MaxTokens > 0:
		return bad(key+".max_tokens", "would cut the beginning that the chat template makes; leave it out with chat")
	}
	for i := range p.Sets {
		at := fmt.Sprintf("%s.sets[%d]", key, i)
		if len(p.Sets[i].Sets) > 0 {
			return bad(at+".sets", "are sets within sets")
		}
		if err := p.Sets[i].validate(at); err != nil {
			return err
		}
	}
	return nil
}

// validateLists checks sampling, rules and what is compared.
func (c *Config) validateLists() error {
	params := c.Sampling.Params(0)
	if err := (sample.Params{LogitBias: params.LogitBias}).Validate(); err != nil {
		return bad("sampling.logit_bias", "%v", err)
	}
	if err := (sample.Params{Grammar: params.Grammar}).Validate(); err != nil {
		return bad("sampling.grammar", "%v", err)
	}
	if err := params.Validate(); err != nil {
		return bad("sampling", "%v", err)
	}
	for i, n := range c.Concurrency {
		key := fmt.Sprintf("concurrency[%d]", i)
		if n < 1 || n > 4096 {
			return bad(key, "%d is out of range 1..4096", n)
		}
		if slices.Contains(c.Concurrency[:i], n) {
			return bad(key, "%d is there twice", n)
		}
	}
	if err := validateRule("rule", c.Rule, params); err != nil {
		return err
	}
	for i, s := range c.Strategies {
		if err := s.validate(fmt.Sprintf("strategies[%d]", i), params); err != nil {
			return err
		}
	}
	return nil
}

// validateRule checks that a rule is there and serves the sampling asked for.
func validateRule(key, name string, p sample.Params) error {
	rule, err := verify.New(name)
	if err == nil {
		err = verify.Serves(rule, p)
	}
	if err != nil {
		return bad(key, "%v", err)
	}
	return nil
}

func (s Strategy) validate(key string, p sample.Params) error {
	if s.Rule != "" {
		if err := validateRule(key+".rule", s.Rule, p); err != nil {
			return err
		}
	}
	if _, err := draft.New(s.Drafter); err != nil {
		return bad(key+".drafter", "%v", err)
	}
	if _, err := s.New(); err != nil {
		var ke *KeyError
		if errors.As(err, &ke) {
			return bad(key+".config."+ke.Key, "%s", ke.Want)
		}
		return bad(key+".config", "%v", err)
	}
	if s.Drafter != "none" && len(s.K) == 0 {
		return bad(key+".k", "is empty; drafter %s needs draft lengths, such as [2, 4]", s.Drafter)
	}
	for i, k := range s.K {
		key := fmt.Sprintf("%s.k[%d]", key, i)
		if k < 0 || k >= kernels.WindowTokens {
			return bad(key, "%d is out of range 0..%d", k, kernels.WindowTokens-1)
		}
		if slices.Contains(s.K[:i], k) {
			return bad(key, "%d is there twice", k)
		}
	}
	if err := s.Length.Validate(); err != nil {
		return bad(key+".length", "%v", err)
	}
	if s.Simulate == nil {
		return nil
	}
	if s.Length.New() != nil {
		return bad(key+".length", "a simulation is of steps that all have k drafts; leave one of length and simulate out")
	}
	return s.validateSimulation(key+".simulate", p)
}

// validateSimulation checks that a simulation can be honoured with every k.
func (s Strategy) validateSimulation(key string, p sample.Params) error {
	spec, err := s.Simulate.Spec()
	if err != nil {
		return bad(key, "%v", err)
	}
	if s.Drafter == "none" {
		return bad(key, "drafter none has no drafts that could be accepted; simulate another")
	}
	if p.Grammar != "" {
		return bad(key, "a simulation accepts drafts that sampling.grammar forbids; leave one of them out")
	}
	for _, k := range s.K {
		var wrong *verify.SimulationError
		if errors.As(spec.Validate(k), &wrong) {
			return bad(key+"."+wrong.Key, "%s", wrong.Want)
		}
	}
	return nil
}

// New makes the strategy with its settings decoded strictly. A setting that is
// unknown or of a wrong type is a KeyError.
func (s Strategy) New() (draft.Strategy, error) {
	d, err := draft.New(s.Drafter)
	if err != nil {
		return nil, err
	}
	if len(s.Config) > 0 {
		if err := decodeSettings(s.Config, d); err != nil {
			return nil, fmt.Errorf("drafter %s: %w", s.Drafter, err)
		}
	}
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("drafter %s: %w", s.Drafter, err)
	}
	return d, nil
}

// decodeSettings decodes what a configuration leaves to a plug-in into its settings,
// a pointer to a struct, as strictly as a file.
func decodeSettings(settings map[string]any, into any) error {
	text, err := yaml.Marshal(settings)
	if err != nil {
		return err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return err
	}
	if m := mistyped(file.Docs[0].Body, reflect.TypeOf(into).Elem()); m != nil {
		return bad(m.key, "%s", m.what)
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		_, key, what := describe(text, err)
		return bad(key, "%s", what)
	}
	return nil
}
