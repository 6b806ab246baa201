package draft

import (
	"fmt"
	"slices"
	"strings"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/tokenizer"
	"exacta.dev/exacta/kernels"
)

// Env is what a strategy may use to make its drafter.
type Env struct {
	Backend kernels.Backend
	// Model is the target; strategies that draft with its parts load nothing
	// of their own.
	Model *model.Model
	// Vocab is the number of ids that have a token.
	Vocab int
	// Tokenizer is the target's; nil for a model without text.
	Tokenizer *tokenizer.Tokenizer
	// Warn is told what a user should know and a run survives, in a
	// sentence; may be nil.
	Warn func(text string)
}

// Strategy is the configuration of a draft strategy: a struct whose fields are
// its settings, with yaml tags, and whose New has filled in the defaults.
type Strategy interface {
	// Validate names the setting that is out of range.
	Validate() error
	// Provision makes the drafter for one engine. A nil drafter means that
	// the strategy decodes plainly.
	Provision(env Env) (engine.Drafter, error)
}

// Info describes a strategy in the registry.
type Info struct {
	// Name is what configurations and records call the strategy.
	Name string
	// Summary is one sentence for users.
	Summary string
	// New returns the configuration with its defaults.
	New func() Strategy
	// Shared says that a sequence's drafts may depend on other sequences of
	// the engine, so that they can't be repeated by running it alone.
	Shared bool
}

var strategies = map[string]Info{}

// Register adds a strategy, from an init function. A name that is empty or taken
// is a mistake in the program and panics.
func Register(i Info) {
	if _, taken := strategies[i.Name]; taken || i.Name == "" || i.New == nil {
		panic(fmt.Sprintf("draft: strategy %q is registered twice, or without name or constructor", i.Name))
	}
	strategies[i.Name] = i
}

// New returns the configuration of a strategy, with defaults. The error lists
// the known names.
func New(name string) (Strategy, error) {
	i, ok := strategies[name]
	if !ok {
		return nil, fmt.Errorf("unknown drafter %q; known drafters: %s", name, strings.Join(Names(), ", "))
	}
	return i.New(), nil
}

// List describes the strategies, by name.
func List() []Info {
	list := make([]Info, 0, len(strategies))
	for _, name := range Names() {
		list = append(list, strategies[name])
	}
	return list
}

// Names lists the strategies' names, sorted.
func Names() []string {
	names := make([]string, 0, len(strategies))
	for name := range strategies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
