package rulestest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/verify"
)

// Run checks the rule that newRule returns new instances of, and fails t with what is
// wrong.
func Run(t *testing.T, newRule func() engine.Verifier) {
	t.Helper()
	if err := Check(newRule); err != nil {
		t.Fatal(err)
	}
}

// Check is Run without a test: it returns the first breach of the contract.
func Check(newRule func() engine.Verifier) error {
	served := 0
	for _, p := range cases() {
		if verify.Serves(newRule(), p.params) != nil {
			continue
		}
		served++
		c := &checker{newRule: newRule, rule: newRule(), params: p.params}
		if err := c.run(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if served == 0 {
		return fmt.Errorf("rule %s serves no request", newRule().Name())
	}
	return nil
}

// named are parameters with a name.
type named struct {
	name   string
	params sample.Params
}

// cases lists the parameters.
func cases() []named {
	const pattern = "(ab?|[^ab][^c])*"
	penal := sample.Params{RepetitionPenalty: 1.3, PresencePenalty: 0.5, FrequencyPenalty: 0.2}
	warm := penal
	warm.Temperature = 0.9
	return []named{
		{"temperature 0", sample.Params{}},
		{"temperature 0, penalties", penal},
		{"temperature 0, bias", sample.Params{LogitBias: "0:1,2:-1.5"}},
		{"temperature 0, grammar", sample.Params{Grammar: pattern}},
		{"temperature", sample.Params{Temperature: 0.8}},
		{"top-k", sample.Params{Temperature: 1, TopK: 2}},
		{"top-p", sample.Params{Temperature: 1, TopP: 0.7}},
		{"min-p", sample.Params{Temperature: 1, MinP: 0.25}},
		{"penalties", warm},
		{"bias", sample.Params{Temperature: 1, LogitBias: "0:1,2:-1.5"}},
		{"grammar", sample.Params{Temperature: 1, Grammar: pattern}},
		{"all processors", sample.Params{Temperature: 1.2, TopK: 3, TopP: 0.95, MinP: 0.02, RepetitionPenalty: 1.2, FrequencyPenalty: 0.3, LogitBias: "1:0.5", Grammar: pattern}},
	}
}

// checker checks a rule with one set of parameters.
type checker struct {
	newRule func() engine.Verifier
	rule    engine.Verifier
	params  sample.Params
	grammar *grammar.Grammar
}

var prompt = []int32{1, 0, 1}

// length is the output of a request, in tokens, unless the text ends.
const length = 30

func (c *checker) run() error {
	if name := c.rule.Name(); name == "" || name != c.newRule().Name() {
		return fmt.Errorf("the rule is called %q, then %q", name, c.newRule().Name())
	}
	lossy, exact := engine.Lossy(c.rule), c.rule.Exact(c.params)
	if lossy && exact {
		return fmt.Errorf("rule %s is lossy and says that its output is plain decoding's", c.rule.Name())
	}
	for _, d := range draftings() {
		for seed := range uint64(3) {
			if err := c.speak(d, 3+int(seed), seed); err != nil {
				return fmt.Errorf("%s, seed %d: %w", d.name, seed, err)
			}
		}
		if d.counted && !exact && !lossy {
			if err := c.distributed(d); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
	}
	return nil
}

// speak lets the rule decode one request over a vocabulary of so many tokens.
func (c *checker) speak(d drafting, vocab int, seed uint64) (err error) {
	target := newToy(vocab, seed, nil)
	p := c.params
	p.Seed = seed * 77
	if c.grammar, err = target.compile(p); err != nil {
		return err
	}
	s := &scene{
		target: target, drafter: newToy(vocab, seed+100, target), prompt: prompt, history: slices.Clone(prompt),
		sampler: target.sampler(p, prompt, c.grammar), rand: rand.New(rand.NewPCG(seed, 2)),
	}
	if s.plain, err = c.plain(target, p); err != nil {
		return err
	}
	ended := func() bool { return len(s.history) > len(prompt) && c.ends(s.history[len(s.history)-1], vocab) }
	for len(s.history) < len(prompt)+length && !ended() {
		draft := d.make(s)
		said, err := c.step(s, d, draft)
		if err != nil {
			return fmt.Errorf("output %d, drafts %v %v: %w", len(s.history)-len(prompt), draft.Tokens, draft.Parents, err)
		}
		for _, id := range said {
			s.history = append(s.history, id)
			s.sampler.Push(id)
			if ended() {
				break
			}
		}
	}
	if !c.rule.Exact(c.params) {
		return nil
	}
	n := min(len(s.history)-len(prompt), len(s.plain))
	for i, id := range s.history[len(prompt):][:n] {
		if id != s.plain[i] {
			return fmt.Errorf("output %d is %d; plain decoding says %d, and the rule promises its tokens", i, id, s.plain[i])
		}
	}
	return nil
}

// ends says whether a token ends the text.
func (c *checker) ends(id int32, vocab int) bool { return c.grammar != nil && int(id) == vocab-1 }

// plain decodes plainly.
func (c *checker) plain(m *toy, p sample.Params) ([]int32, error) {
	s, history := m.sampler(p, prompt, c.grammar), slices.Clone(prompt)
	for len(history) < len(prompt)+length {
		id, err := m.plain(s, history)
		if err != nil {
			return nil, err
		}
		history = append(history, id)
		s.Push(id)
		if c.ends(id, m.vocab) {
			break
		}
	}
	return history[len(prompt):], nil
}
