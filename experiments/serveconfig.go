package experiments

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/engine/sched"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// ServeConfig says what a server serves. Field comments are its reference; every
// field has a default.
type ServeConfig struct {
	// Model, Backend, GPUMemory, Threads, Kernels and PackCache are those of experiments.
	Model     string  `yaml:"model"`
	Backend   string  `yaml:"backend"`
	GPUMemory float64 `yaml:"gpu_memory,omitempty"`
	Threads   int     `yaml:"threads"`
	Kernels   string  `yaml:"kernels"`
	PackCache bool    `yaml:"pack_cache,omitempty"`
	// Name is what clients call the model; empty is Model.
	Name string `yaml:"name"`
	// Context is the longest sequence in tokens, prompt and answer; 0 is the
	// model's, at most 8192.
	Context int `yaml:"context"`
	// ChatTemplate is a file (*.jinja), or the name of one of the model's
	// templates; empty is the model's default.
	ChatTemplate string `yaml:"chat_template"`

	// Strategies that requests can choose; the first is the default. Plain
	// decoding (none) always is one.
	Strategies []ServeStrategy `yaml:"strategies"`
	// K is the number of drafts per step of the strategies that a server has
	// which names none: mtp or dspark, if the model has such a module, ngram and suffix.
	K int `yaml:"k"`
	// MaxK is the most drafts per step that a request may ask for.
	MaxK int `yaml:"max_k"`
	// Rule is the acceptance rule of requests that choose none.
	Rule string `yaml:"rule"`
	// Length chooses draft lengths, up to the k of a request; see
	// draft.Length.
	Length draft.Length `yaml:"length,omitempty"`
	// Simulate replaces the rule's decisions by drawn ones, for measurements of
	// speed: answers then mean nothing, and say so.
	Simulate *Simulate `yaml:"simulate,omitempty"`

	// Sequences is how many run at once; others wait.
	Sequences int `yaml:"sequences"`
	// Engine settings; the prefix cache is on.
	Engine EngineConfig `yaml:"engine"`
	// ShareCache lets clients with different keys hit the same prefix cache,
	// of which timing tells.
	ShareCache bool `yaml:"share_cache"`

	// Keys let clients in; without any, all are.
	Keys []ServeKey `yaml:"keys,omitempty"`
	// Origins are those that CORS allows.
	Origins []string `yaml:"origins,omitempty"`
	// Limits of requests.
	Limits ServeLimits `yaml:"limits"`

	// Records is a directory below which each start makes one, with the step
	// records and the requests; empty keeps none. The records have the answers'
	// token ids.
	Records string `yaml:"records"`
	// RecordPrompts keeps the token ids of prompts there: without them answers
	// can't be audited.
	RecordPrompts bool `yaml:"record_prompts"`
	// LogText puts prompts and answers into the log.
	LogText bool `yaml:"log_text"`
	// PromptLogProbs keeps memory for the logits of a whole step, so that requests
	// may ask for the log-probabilities of their prompts.
	PromptLogProbs bool `yaml:"prompt_logprobs"`
	// Pprof serves profiles.
	Pprof bool `yaml:"pprof"`
}

// ServeStrategy is a draft strategy that a server has.
type ServeStrategy struct {
	// Drafter is its registered name.
	Drafter string `yaml:"drafter"`
	// K is the number of drafts per step of requests that leave it to the
	// server.
	K int `yaml:"k"`
	// Config are the strategy's own settings.
	Config map[string]any `yaml:"config,omitempty"`
}

// ServeKey lets a client in.
type ServeKey struct {
	// Name is what logs call the client.
	Name string `yaml:"name"`
	// Key is the key; or else SHA256 is its hash, in hexadecimal digits.
	Key    string `yaml:"key,omitempty"`
	SHA256 string `yaml:"sha256,omitempty"`
	// InFlight bounds its requests at a time, TokensPerMinute its prompt and
	// answer tokens; 0 does not.
	InFlight        int `yaml:"in_flight"`
	TokensPerMinute int `yaml:"tokens_per_minute"`
}

// ServeLimits bound requests; 0 takes the default of server.Limits.
type ServeLimits struct {
	BodyBytes    int `yaml:"body_bytes"`
	Depth        int `yaml:"depth"`
	Prompts      int `yaml:"prompts"`
	Choices      int `yaml:"choices"`
	Stops        int `yaml:"stops"`
	Open         int `yaml:"open"`
	NewTokens    int `yaml:"new_tokens"`
	BufferSteps  int `yaml:"buffer_steps"`
	WriteSeconds int `yaml:"write_seconds"`
}

// DefaultServe returns the configuration that a file starts from.
func DefaultServe() ServeConfig {
	return ServeConfig{
		Model: registry.Embedded, Backend: "cpu", Rule: "coupled", K: 3, MaxK: 8, Sequences: 32,
		Engine: EngineConfig{PrefixCache: true, Policy: sched.Policies()[0]},
	}
}

// LoadServeConfig reads and checks the configuration file of a server.
func LoadServeConfig(path string) (ServeConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return ServeConfig{}, fmt.Errorf("config: %w", err)
	}
	c := DefaultServe()
	err = parseStrict(path, text, "server", &c, func() error { return c.Validate() })
	return c, err
}

// Validate checks ranges and names. Errors are KeyErrors.
func (c *ServeConfig) Validate() error {
	for _, r := range []struct {
		key       string
		v, lo, hi int
	}{
		{"threads", c.Threads, 0, 1024}, {"context", c.Context, 0, 1 << 24}, {"max_k", c.MaxK, 1, kernels.WindowTokens - 1}, {"k", c.K, 0, c.MaxK},
		{"sequences", c.Sequences, 1, 4096}, {"limits.body_bytes", c.Limits.BodyBytes, 0, 1 << 30}, {"limits.depth", c.Limits.Depth, 0, 1000},
		{"limits.prompts", c.Limits.Prompts, 0, 1 << 16}, {"limits.choices", c.Limits.Choices, 0, 1 << 16}, {"limits.stops", c.Limits.Stops, 0, 1024},
		{"limits.open", c.Limits.Open, 0, 1 << 20}, {"limits.new_tokens", c.Limits.NewTokens, 0, 1 << 24}, {"limits.buffer_steps", c.Limits.BufferSteps, 0, 1 << 20},
		{"limits.write_seconds", c.Limits.WriteSeconds, 0, 3600},
	} {
		if r.v < r.lo || r.v > r.hi {
			return bad(r.key, "%d is out of range %d..%d", r.v, r.lo, r.hi)
		}
	}
	if err := c.Engine.validate(); err != nil {
		return err
	}
	switch {
	case c.Model == "":
		return bad("model", "is empty; give %s", registry.Names)
	case validGPUMemory(c.GPUMemory, c.Backend) != "":
		return bad("gpu_memory", "%s", validGPUMemory(c.GPUMemory, c.Backend))
	case !slices.Contains(Backends, c.Backend):
		return bad("backend", "%q is not known; use one of %v", c.Backend, Backends)
	case c.PackCache && c.Backend != "cpu":
		return bad("pack_cache", "is for backend cpu, not %s", c.Backend)
	case c.RecordPrompts && c.Records == "":
		return bad("record_prompts", "is given without records")
	}
	if err := validateRule("rule", c.Rule, sample.Params{}); err != nil {
		return err
	}
	if err := c.Length.Validate(); err != nil {
		return bad("length", "%v", err)
	}
	if c.Simulate != nil {
		if _, err := c.Simulate.Spec(); err != nil {
			return bad("simulate", "%v", err)
		}
	}
	return c.validateLists()
}

func (c *ServeConfig) validateLists() error {
	for i, s := range c.Strategies {
		key := fmt.Sprintf("strategies[%d]", i)
		if slices.ContainsFunc(c.Strategies[:i], func(o ServeStrategy) bool { return o.Drafter == s.Drafter }) {
			return bad(key+".drafter", "%s is there twice", s.Drafter)
		}
		if s.K < 0 || s.K > c.MaxK {
			return bad(key+".k", "%d is out of range 0..%d (max_k)", s.K, c.MaxK)
		}
		if err := (Strategy{Drafter: s.Drafter, K: []int{s.K}, Config: s.Config}).validate(key, sample.Params{}); err != nil {
			return err
		}
		if c.Simulate == nil || s.Drafter == "none" {
			continue
		}
		spec, _ := c.Simulate.Spec() // checked
		if err := spec.Validate(s.K); err != nil {
			return bad("simulate", "%v; strategy %s has k %d", err, s.Drafter, s.K)
		}
	}
	for i, k := range c.Keys {
		if _, err := k.hash(); err != nil {
			return bad(fmt.Sprintf("keys[%d]", i), "%v", err)
		}
	}
	return nil
}

// hash is the SHA-256 of the key.
func (k *ServeKey) hash() (sum [sha256.Size]byte, err error) {
	switch {
	case (k.Key == "") == (k.SHA256 == ""):
		return sum, fmt.Errorf("give key or sha256")
	case k.Key != "":
		return sha256.Sum256([]byte(k.Key)), nil
	}
	raw, err := hex.DecodeString(k.SHA256)
	if err != nil || len(raw) != len(sum) {
		return sum, fmt.Errorf("sha256 must be %d hexadecimal digits", 2*len(sum))
	}
	copy(sum[:], raw)
	return sum, nil
}

// strategy returns the strategy that requests have which choose none.
func (c *ServeConfig) strategy() ServeStrategy {
	if len(c.Strategies) == 0 {
		return ServeStrategy{Drafter: "none"}
	}
	return c.Strategies[0]
}

// rule makes a rule, simulated where the server simulates and there are drafts.
func (c *ServeConfig) newRule(name string, k int) (rule verifier, err error) {
	if rule, err = verify.New(name); err != nil || c.Simulate == nil || k == 0 {
		return rule, err
	}
	spec, err := c.Simulate.Spec()
	if err != nil {
		return nil, err
	}
	return verify.Simulate(rule, spec, k)
}

// simulation is what is simulated, as records have it; "" for nothing.
func (c *ServeConfig) simulation() string {
	if c.Simulate == nil {
		return ""
	}
	spec, _ := c.Simulate.Spec() // validated
	return spec.String()
}

// experiment is the configuration of an experiment with the same model and
// strategies, for what loads and audits those.
func (c *ServeConfig) experiment() Config {
	e := Default()
	e.Model, e.Backend, e.Threads, e.Kernels, e.Context, e.Engine = c.Model, c.Backend, c.Threads, c.Kernels, c.Context, c.Engine
	e.GPUMemory = c.GPUMemory
	e.PackCache = c.PackCache
	for _, s := range c.Strategies {
		e.Strategies = append(e.Strategies, Strategy{Drafter: s.Drafter, K: []int{s.K}, Config: s.Config, Length: c.Length, Simulate: c.Simulate})
	}
	return e
}

// public is the configuration without what must not be written.
func (c *ServeConfig) public() ServeConfig {
	p := *c
	p.Keys = nil
	for _, k := range c.Keys {
		k.Key, k.SHA256 = "", strings.Repeat("0", 2*sha256.Size)
		p.Keys = append(p.Keys, k)
	}
	return p
}

// serveDir names the directory of a start.
func serveDir(records string, now time.Time) string {
	return records + "/serve-" + now.UTC().Format("20060102-150405.000")
}
