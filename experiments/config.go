package experiments

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// Config is an experiment. Field comments are its reference; every field has a
// default but strategies.
type Config struct {
	// Name of the experiment; the run directory starts with it.
	Name string `yaml:"name" json:"name"`
	// Model: embedded, random:SHAPE, a directory with config.json, a GGUF file,
	// or ORG/NAME of a model in the Hugging Face cache.
	Model string `yaml:"model" json:"model"`
	// Backend: cpu or ref (float64, slow), cuda, or fakedev, a CPU that pretends to
	// be a device.
	Backend string `yaml:"backend" json:"backend"`
	// GPUMemory is the share of the GPU's memory that cuda may take; 0 is 0.9.
	GPUMemory float64 `yaml:"gpu_memory,omitempty" json:"gpu_memory,omitempty"`
	// Threads of the CPU backend; 0 is all cores.
	Threads int `yaml:"threads" json:"threads"`
	// Kernels forces a CPU kernel set: avx512bf16, avx512f, avx2 or go.
	Kernels string `yaml:"kernels" json:"kernels"`
	// PackCache keeps the weights as the CPU backend packs them in a file that the
	// next run maps and processes share (exacta run --pack-cache).
	PackCache bool `yaml:"pack_cache,omitempty" json:"pack_cache,omitempty"`
	// Context is the longest sequence in tokens, prompt and output; 0 is the
	// longest prompt and max_new.
	Context int `yaml:"context" json:"context"`
	// Prompts to continue.
	Prompts Prompts `yaml:"prompts" json:"prompts"`
	// MaxNew is the number of tokens to generate per prompt.
	MaxNew int `yaml:"max_new" json:"max_new"`
	// IgnoreEOS generates max_new tokens whatever the model says.
	IgnoreEOS bool `yaml:"ignore_eos" json:"ignore_eos"`
	// Sampling parameters of all requests; the default is greedy.
	Sampling Sampling `yaml:"sampling" json:"sampling"`
	// Rule is the acceptance rule of strategies that name none.
	Rule string `yaml:"rule" json:"rule"`
	// Strategies to compare. Plain decoding is always measured beside them.
	Strategies []Strategy `yaml:"strategies" json:"strategies"`
	// Concurrency lists the numbers of sequences in flight.
	Concurrency []int `yaml:"concurrency" json:"concurrency"`
	// Repeats is the number of interleaved rounds; speeds are medians.
	Repeats int `yaml:"repeats" json:"repeats"`
	// Engine settings.
	Engine EngineConfig `yaml:"engine" json:"engine"`
}

// Prompts says where prompts come from.
type Prompts struct {
	// File is a JSONL file with a field "prompt" (or "turns", of which the
	// first is taken), and optionally "id" and "class" (or "category").
	// Empty means the prompts that come with the model.
	File string `yaml:"file" json:"file"`
	// Classes keeps prompts of these classes only.
	Classes []string `yaml:"classes" json:"classes"`
	// Limit keeps the first so many; 0 keeps all.
	Limit int `yaml:"limit" json:"limit"`
	// MaxTokens cuts each prompt to its last so many tokens; 0 does not.
	MaxTokens int `yaml:"max_tokens" json:"max_tokens"`
	// Kind is text (the default), repetitive or random. A repetitive prompt
	// is the end of a text, over and over, max_tokens long (128 if not
	// given), of class repetitive; a random one is as many ids of any
	// tokens, of class random. Models without a tokenizer have random ones
	// only.
	Kind string `yaml:"kind,omitempty" json:"kind,omitempty"`
	// Chat puts each text to the model as what a user says, by the model's
	// chat template. A template that asks for the date gets that of ChatClock,
	// so that a run can be repeated.
	Chat bool `yaml:"chat,omitempty" json:"chat,omitempty"`
	// Sets are several sets of prompts, in place of one; the results then
	// have lines by class.
	Sets []Prompts `yaml:"sets,omitempty" json:"sets,omitempty"`
}

// Sampling are the sampling parameters; see engine/sample.
type Sampling struct {
	Temperature       float32 `yaml:"temperature" json:"temperature"`
	TopK              int     `yaml:"top_k" json:"top_k"`
	TopP              float32 `yaml:"top_p" json:"top_p"`
	MinP              float32 `yaml:"min_p" json:"min_p"`
	RepetitionPenalty float32 `yaml:"repetition_penalty" json:"repetition_penalty"`
	PresencePenalty   float32 `yaml:"presence_penalty" json:"presence_penalty"`
	FrequencyPenalty  float32 `yaml:"frequency_penalty" json:"frequency_penalty"`
	// Seed of the run; each prompt's own seed is derived from it.
	Seed uint64 `yaml:"seed" json:"seed"`
	// LogitBias is added to the logits of tokens, by id.
	LogitBias map[int32]float32 `yaml:"logit_bias,omitempty" json:"logit_bias,omitempty"`
	// Grammar is a regular expression (syntax of Go's regexp) that the whole
	// output matches; empty is off.
	Grammar string `yaml:"grammar,omitempty" json:"grammar,omitempty"`
}

// Params returns the parameters with the seed of prompt i.
func (s Sampling) Params(i int) sample.Params {
	return sample.Params{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP,
		RepetitionPenalty: s.RepetitionPenalty, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		Seed: s.Seed + uint64(i)*0x9e3779b97f4a7c15, LogitBias: sample.FormatBias(s.LogitBias), Grammar: s.Grammar,
	}
}

// Strategy is a draft strategy with the draft lengths to try.
type Strategy struct {
	// Drafter is the strategy's registered name (exacta drafters).
	Drafter string `yaml:"drafter" json:"drafter"`
	// K lists the numbers of drafts per step.
	K []int `yaml:"k" json:"k"`
	// Length says how many drafts a step gets, of the k asked for: all of
	// them unless it says otherwise. See draft.Length.
	Length draft.Length `yaml:"length,omitempty" json:"length,omitzero"`
	// Rule overrides the experiment's rule.
	Rule string `yaml:"rule" json:"rule"`
	// Config are the strategy's own settings.
	Config map[string]any `yaml:"config" json:"config,omitempty"`
	// Simulate replaces the rule's decisions by drawn ones. Only speed can be
	// read from such a run: nothing in it is called exact, see Summary.
	Simulate *Simulate `yaml:"simulate,omitempty" json:"simulate,omitempty"`
}

// settings are the strategy's settings in a line.
func (s *Strategy) settings() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.Config)) {
		switch v := s.Config[key].(type) {
		case []any, map[string]any:
		default:
			all = append(all, fmt.Sprintf("%s=%v", key, v))
		}
	}
	return strings.Join(all, ",")
}

// Simulate says how many drafts simulated verifications accept: one of its keys
// is given. See verify.Simulation.
type Simulate struct {
	// Length is the mean accept length, the token after the drafts
	// included: 1..k+1 for every k of the strategy.
	Length *float64 `yaml:"length,omitempty" json:"length,omitempty"`
	// Rates[i] is the share of steps that accept drafts 0..i; it does not
	// rise with i.
	Rates []float64 `yaml:"rates,omitempty" json:"rates,omitempty"`
}

// Spec returns the simulation, or an error if none or two are given.
func (s *Simulate) Spec() (verify.Simulation, error) {
	switch {
	case s.Length != nil && s.Rates != nil:
		return verify.Simulation{}, errors.New("has length and rates; give one of them")
	case s.Length != nil:
		return verify.Simulation{Length: *s.Length}, nil
	case s.Rates != nil:
		return verify.Simulation{Rates: s.Rates}, nil
	}
	return verify.Simulation{}, errors.New("is empty; give length or rates")
}

// EngineConfig are the engine's settings; 0 takes the engine's default.
type EngineConfig struct {
	Pages       int  `yaml:"pages" json:"pages"`
	BatchTokens int  `yaml:"batch_tokens" json:"batch_tokens"`
	Chunk       int  `yaml:"chunk" json:"chunk"`
	PrefixCache bool `yaml:"prefix_cache" json:"prefix_cache"`
	// Policy is the order of admission: fcfs, shortest-prefill or session.
	Policy string `yaml:"policy" json:"policy"`
	// PrefillShare is the percentage of a step's rows that prompts may have
	// even if drafts want them.
	PrefillShare int `yaml:"prefill_share" json:"prefill_share"`
	// ExpectedOutput is the length, in tokens, that admission counts on for an
	// output that may stop early before it has seen some end; -1 admits by the
	// prompt alone.
	ExpectedOutput int `yaml:"expected_output" json:"expected_output"`
	// Loop: auto, the default, decodes on the device without the host wherever
	// backend and request allow it; off never does.
	Loop string `yaml:"loop,omitempty" json:"loop,omitempty"`
}

// Loops are the values of EngineConfig.Loop.
var Loops = []string{"auto", "off"}

// Default returns the configuration that a file starts from.
func Default() Config {
	return Config{
		Name: "experiment", Model: "embedded", Backend: "cpu", MaxNew: 128, Rule: "greedy",
		Concurrency: []int{1}, Repeats: 3, Sampling: Sampling{TopP: 1, RepetitionPenalty: 1},
	}
}

// LoadConfig reads and checks a configuration file.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	return ParseConfig(path, text)
}

// ParseConfig reads a configuration strictly: an unknown key, a wrong type or a
// value out of range is an error that names the file, the line and the key.
func ParseConfig(name string, text []byte) (Config, error) {
	c := Default()
	err := parseStrict(name, text, "experiment", &c, func() error { return c.Validate() })
	return c, err
}

// CheckConfig parses an experiment, of whatever form.
func CheckConfig(name string, text []byte) (err error) {
	if IsLoad(text) {
		_, err = ParseLoadExperiment(name, text)
	} else {
		_, err = ParseConfig(name, text)
	}
	return err
}

// parseStrict reads one YAML document, of what, into a struct that has its defaults,
// and checks it.
func parseStrict[T any](name string, text []byte, what string, into *T, validate func() error) error {
	if err := checkSize(name, text); err != nil {
		return err
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return yamlError(name, text, err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return fmt.Errorf("%s: %d YAML documents; it must hold one %s", name, filled(file), what)
	}
	if m := mistyped(file.Docs[0].Body, reflect.TypeFor[T]()); m != nil {
		return placed(name, m.line, m.key, m.what)
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		return yamlError(name, text, err)
	}
	if err := validate(); err != nil {
		var ke *KeyError
		if errors.As(err, &ke) {
			return fmt.Errorf("%s:%s %w", name, lineOf(file, ke.Key), err)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// filled counts the documents that are not empty.
func filled(file *ast.File) int {
	n := 0
	for _, d := range file.Docs {
		if d.Body != nil {
			n++
		}
	}
	return n
}

// lineOf finds the line of a key such as strategies[1].k, or of its nearest
// parent that is there.
func lineOf(file *ast.File, key string) string {
	for key != "" {
		path, err := yaml.PathString("$." + key)
		if err == nil {
			if node, err := path.FilterFile(file); err == nil && node != nil {
				return fmt.Sprintf("%d:", node.GetToken().Position.Line)
			}
		}
		i := max(strings.LastIndexByte(key, '.'), strings.LastIndexByte(key, '['))
		if i < 0 {
			break
		}
		key = key[:i]
	}
	return ""
}
