package sample

import (
	"errors"
	"fmt"
	"math"

	"exacta.dev/exacta/engine/grammar"
)

// Constrain gives the sampler the compiled grammar of its parameters' pattern,
// before the first Push. Rows of a request with a pattern are errors without it.
func (s *Sampler) Constrain(g *grammar.Grammar) {
	s.grammar, s.state = g, g.Start()
}

// GrammarError says that a row has no token to choose.
type GrammarError struct {
	Pattern string
	Left    bool // the tokens before the row do not begin any text that matches
}

// Error implements error.
func (e *GrammarError) Error() string {
	if e.Left {
		return fmt.Sprintf("grammar %q: the output is not the beginning of a text that matches", e.Pattern)
	}
	return fmt.Sprintf("grammar %q: no token of the vocabulary continues the output to a text that matches, and none ends it", e.Pattern)
}

// mask drops from a row the tokens that the grammar does not allow after the
// pushed tokens and the drafts.
func (s *Sampler) mask(z []float64, drafts []int32) error {
	if s.params.Grammar == "" {
		return nil
	}
	if s.grammar == nil {
		return errors.New("the request's grammar was not compiled")
	}
	at := s.state
	for _, d := range drafts {
		at = s.grammar.Next(at, d)
	}
	if at == "" {
		return &GrammarError{s.params.Grammar, true}
	}
	allowed := s.grammar.Allowed(at)
	left := false
	for i := range z {
		if !allowed.Has(int32(i)) {
			z[i] = math.Inf(-1)
		} else if z[i] > math.Inf(-1) {
			left = true
		}
	}
	if !left {
		return &GrammarError{s.params.Grammar, false}
	}
	return nil
}
