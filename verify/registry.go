package verify

import (
	"fmt"
	"slices"
	"strings"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
)

// Info describes a rule in the registry.
type Info struct {
	// Name is what configurations and records call the rule.
	Name string
	// Summary is one sentence for users.
	Summary string
	// New returns a rule for one engine; rules may keep scratch memory. It is
	// nil where there are Settings.
	New func() engine.Verifier
	// Settings returns the configuration with its defaults; nil where the
	// rule has none.
	Settings func() Settings
}

// Lossy says that the rule's output is neither that of plain decoding nor of its
// distribution; see engine.Lossy.
func (i Info) Lossy() bool { return engine.Lossy(i.rule()) }

// rule makes the rule with its defaults.
func (i Info) rule() engine.Verifier {
	if i.Settings != nil {
		return i.Settings().Rule()
	}
	return i.New()
}

var registry = map[string]Info{}

// Register adds a rule, from an init function. A name that is empty or taken is
// a mistake in the program and panics.
func Register(i Info) {
	if _, taken := registry[i.Name]; taken || i.Name == "" || (i.New == nil) == (i.Settings == nil) {
		panic(fmt.Sprintf("verify: rule %q is registered twice, or without name or constructor, or with two", i.Name))
	}
	registry[i.Name] = i
}

// New returns a new instance of the rule: its registered name, or, where it has
// settings, perhaps with some of them, "typical:epsilon=0.2". The error lists what
// is known.
func New(text string) (engine.Verifier, error) {
	name, list, configured := strings.Cut(text, ":")
	i, ok := registry[name]
	switch {
	case !ok:
		return nil, fmt.Errorf("unknown rule %q; known rules: %s", name, strings.Join(Names(), ", "))
	case !configured:
		return i.rule(), nil
	case i.Settings == nil:
		return nil, fmt.Errorf("rule %q: %s has no settings", text, name)
	}
	s := i.Settings()
	if err := set(s, list); err != nil {
		return nil, fmt.Errorf("rule %q: %w", text, err)
	}
	return s.Rule(), nil
}

// List describes the rules, by name.
func List() []Info {
	list := make([]Info, 0, len(registry))
	for _, name := range Names() {
		list = append(list, registry[name])
	}
	return list
}

// Names lists the rules' names, sorted.
func Names() []string {
	names := make([]string, 0, len(registry))
	for name := range registry {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Limited is a rule that can't serve every request.
type Limited interface {
	// Serves returns nil, or an error that says what the rule can't do and
	// which one can.
	Serves(p sample.Params) error
}

// Serves returns nil if the rule can serve requests with these parameters, and
// else why not. Ask when a request arrives: Verify would refuse each step.
func Serves(rule engine.Verifier, p sample.Params) error {
	if l, ok := rule.(Limited); ok {
		return l.Serves(p)
	}
	return nil
}
