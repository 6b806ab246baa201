package sample

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine/grammar"
)

// Sampler chooses the tokens of one sequence. Its methods, Push aside, do not
// change it; they are not safe for use by several goroutines, because of the
// workspace.
type Sampler struct {
	params  Params
	history history

	penalised                       bool
	repetition, presence, frequency float64
	ws                              *Workspace

	bias    []bias
	grammar *grammar.Grammar // nil until Constrain
	state   grammar.State    // of the pushed tokens

	ahead []int32 // of a view: tokens after the pushed ones
}

// New returns the sampler of a request with the given prompt. Parameters are
// taken as they are: see [Params.Validate]. The sampler has a workspace of its
// own until [Sampler.Use].
func New(p Params, prompt []int32) *Sampler {
	s := &Sampler{
		params:     p,
		repetition: float64(p.RepetitionPenalty),
		presence:   float64(p.PresencePenalty),
		frequency:  float64(p.FrequencyPenalty),
		ws:         NewWorkspace(),
	}
	if s.repetition == 0 {
		s.repetition = 1
	}
	s.bias, _ = parseBias(p.LogitBias) // validated
	s.penalised = s.repetition != 1 || s.presence != 0 || s.frequency != 0
	if s.repetition != 1 {
		for _, id := range prompt {
			s.history.add(id, 0)
		}
	}
	return s
}

// Use makes the sampler work in w, which others may share.
func (s *Sampler) Use(w *Workspace) { s.ws = w }

// Ahead returns a view of the sampler in which the history goes on with tokens,
// as if they had been pushed: the sampler of a step that starts after them. The
// view is good until the next Push, and is not pushed to itself.
func (s *Sampler) Ahead(tokens []int32) *Sampler {
	view := *s
	view.ahead = append(s.ahead[:len(s.ahead):len(s.ahead)], tokens...)
	return &view
}

// At returns a view of the sampler with another temperature, all else the same:
// for what asks how likely tokens are where the request chooses without chance.
func (s *Sampler) At(temperature float32) *Sampler {
	view := *s
	view.params.Temperature = temperature
	return &view
}

// Params returns the request's parameters.
func (s *Sampler) Params() Params { return s.params }

// Push tells of output tokens, in order, once each was chosen for good: the
// pending token counts, a draft that may yet be rejected does not.
func (s *Sampler) Push(tokens ...int32) {
	if s.grammar != nil {
		for _, id := range tokens {
			s.state = s.grammar.Next(s.state, id)
		}
	}
	if !s.penalised {
		return
	}
	for _, id := range tokens {
		s.history.add(id, 1)
	}
}

// Stream returns noise of the request: see [Params.Stream].
func (s *Sampler) Stream(purpose Purpose, length, offset int) Stream {
	return s.params.Stream(purpose, length, offset)
}

// RowError says what is wrong with a row of logits.
type RowError struct {
	Token int     // the token id; -1 if the row as a whole is meant
	Value float32 // its logit
	Vocab int     // the length of the row
}

// Error implements error.
func (e *RowError) Error() string {
	if e.Token < 0 {
		return fmt.Sprintf("logits: none of %d is finite", e.Vocab)
	}
	return fmt.Sprintf("logits: %v at token %d of %d; weights or activations are out of range", e.Value, e.Token, e.Vocab)
}

// load copies a row into the workspace as float64, applies bias, penalties and
// grammar, and returns the token with the largest value.
func (s *Sampler) load(logits []float32, drafts []int32) (z []float64, top int32, err error) {
	s.ws.resize(len(logits))
	z = s.ws.weight
	inf := float32(math.Inf(1))
	for i, l := range logits {
		if !(l < inf) {
			return nil, -1, &RowError{Token: i, Value: l, Vocab: len(logits)}
		}
		z[i] = float64(l)
	}
	for _, b := range s.bias {
		if int(b.id) < len(z) {
			z[b.id] += b.value
		}
	}
	if len(s.ahead) > 0 {
		drafts = append(s.ahead[:len(s.ahead):len(s.ahead)], drafts...)
	}
	s.penalties(z, logits, drafts)
	if err := s.mask(z, drafts); err != nil {
		return nil, -1, err
	}
	best := math.Inf(-1)
	top = -1
	for i, v := range z {
		if v > best {
			best, top = v, int32(i)
		}
	}
	if top < 0 {
		return nil, -1, &RowError{Token: -1, Vocab: len(logits)}
	}
	return z, top, nil
}

// Argmax returns the token with the largest logit after bias, penalties and
// grammar, the lowest id among equals, at a row of FP32 logits [vocab] whose
// history is the pushed tokens and then drafts. The error, a [RowError], says that
// the row has NaN or positive infinity, or nothing finite, or, a [GrammarError],
// that the grammar leaves nothing.
func (s *Sampler) Argmax(logits []float32, drafts []int32) (int32, error) {
	_, top, err := s.load(logits, drafts)
	return top, err
}
