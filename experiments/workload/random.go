package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

func init() {
	RegisterSource(Info[Source]{"random", "prompts of random token ids, inputs and outputs of exact lengths", func() Source {
		return &Random{Lengths: Lengths{Input: 1024, Output: 128, Sessions: 100}}
	}})
	RegisterSource(Info[Source]{"shared-prefix", "random prompts in groups that begin with the same tokens", func() Source {
		return &SharedPrefix{Lengths: Lengths{Input: 256, Output: 128, Sessions: 100}, Prefix: 1024, Groups: 10}
	}})
}

// Lengths are those of requests that are made up.
type Lengths struct {
	// Input and Output are tokens of prompt and answer.
	Input  int `yaml:"input"`
	Output int `yaml:"output"`
	// Spread draws both uniformly from (1 - spread) to (1 + spread) times
	// them; 0 keeps them exact.
	Spread float64 `yaml:"spread"`
	// Sessions is the number of requests.
	Sessions int `yaml:"sessions"`
}

// Bounds of what a source may make.
const (
	maxSessions = 1 << 20
	maxTokens   = 1 << 22
)

func (l *Lengths) validate() error {
	switch {
	case l.Input < 1 || l.Input > maxTokens:
		return fmt.Errorf("input is %d; it is 1 to %d tokens", l.Input, maxTokens)
	case l.Output < 1 || l.Output > maxTokens:
		return fmt.Errorf("output is %d; it is 1 to %d tokens", l.Output, maxTokens)
	case !(l.Spread >= 0 && l.Spread < 1):
		return fmt.Errorf("spread is %v; it is 0 to below 1", l.Spread)
	case l.Sessions < 1 || l.Sessions > maxSessions:
		return fmt.Errorf("sessions is %d; it is 1 to %d", l.Sessions, maxSessions)
	}
	return nil
}

// around draws a length.
func (l *Lengths) around(r *rand.Rand, n int) int {
	low, high := int(float64(n)*(1-l.Spread)), int(float64(n)*(1+l.Spread))
	return max(1, low+r.IntN(high-low+1))
}

// Random makes prompts of random tokens.
type Random struct {
	Lengths `yaml:",inline"`
}

// Validate implements Source.
func (s *Random) Validate() error { return s.validate() }

// Load implements Source.
func (s *Random) Load(env Env) ([]Session, error) { return s.make("random", env, nil) }

// make makes requests; prefix, if not nil, gives what request i begins with.
func (l *Lengths) make(name string, env Env, prefix func(i int) []int32) ([]Session, error) {
	if env.Vocab < 1 {
		return nil, errNoTokens
	}
	lengths, tokens := env.rand(forLengths), env.rand(forTokens)
	out := make([]Session, l.Sessions)
	for i := range out {
		r := Request{ID: fmt.Sprintf("%s-%d", name, i), Class: name, Exact: true}
		if prefix != nil {
			r.Tokens = append(r.Tokens, prefix(i)...)
		}
		r.Tokens = append(r.Tokens, env.draw(tokens, l.around(lengths, l.Input))...)
		r.MaxTokens = l.around(lengths, l.Output)
		out[i] = Session{ID: r.ID, Requests: []Request{r}}
	}
	return out, nil
}

// SharedPrefix makes random prompts of which each begins with one of a few
// prefixes.
type SharedPrefix struct {
	Lengths `yaml:",inline"`
	// Prefix is the length of a shared beginning in tokens, before Input, and
	// Groups the number of different ones, which requests have in turn.
	Prefix int `yaml:"prefix"`
	Groups int `yaml:"groups"`
}

// Validate implements Source.
func (s *SharedPrefix) Validate() error {
	if s.Prefix < 1 || s.Prefix > maxTokens || s.Groups < 1 || s.Groups > maxSessions {
		return errors.New("prefix and groups must be at least 1")
	}
	return s.validate()
}

// Load implements Source.
func (s *SharedPrefix) Load(env Env) ([]Session, error) {
	if env.Vocab < 1 {
		return nil, errNoTokens
	}
	return s.make("shared-prefix", env, func(i int) []int32 { return env.block("shared-prefix", int64(i%s.Groups), s.Prefix) })
}
