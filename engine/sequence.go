package engine

import (
	"slices"

	"exacta.dev/exacta/engine/sample"
)

// Finish says why a sequence ended.
type Finish string

// Reasons of a sequence's end.
const (
	FinishStop   Finish = "stop"   // an end-of-text or stop token
	FinishLength Finish = "length" // the token limit or the context's end
	FinishCancel Finish = "cancelled"
	FinishError  Finish = "error"
)

// Request asks for a continuation of a prompt.
type Request struct {
	ID     string  // free text, unique within a run
	Prompt []int32 // token ids, at least one
	MaxNew int     // most tokens to generate, at least 1
	Params sample.Params
	// Drafter names one of the engine's drafters; empty means none.
	Drafter string
	// K is the most drafts per step; 0 decodes plainly.
	K int
	// Rule is the acceptance rule; nil means the engine's default.
	Rule Verifier
	// Stop lists token ids that end the text. IgnoreStop runs to MaxNew.
	Stop       []int32
	IgnoreStop bool
}

// Sequence is a request in the engine. Its accessors may be used by drafters
// and rules during the calls in which they are given it.
type Sequence struct {
	id      int64
	req     Request
	slot    int
	tokens  []int32 // prompt, output, of which the last is pending
	length  int     // committed length
	sampler *sample.Sampler
	drafter *drafterEntry
	rule    Verifier

	seqStep     int32
	preemptions int32
	cached      int32
	looped      bool // a Loop has taken it over
	owed        int  // committed rows that the drafter has not been told of
	finish      Finish
	err         error
}

// ID returns the sequence's number within the engine.
func (s *Sequence) ID() int64 { return s.id }

// Request returns what was asked for.
func (s *Sequence) Request() Request { return s.req }

// Slot returns the cache slot, or -1 while the sequence is not resident.
func (s *Sequence) Slot() int { return s.slot }

// Tokens returns prompt and output; after the prompt was read the last one is
// pending (not yet in the cache). Not to be changed, valid until the next step.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Output returns the generated tokens.
func (s *Sequence) Output() []int32 { return s.tokens[len(s.req.Prompt):] }

// PromptLen returns the length of the prompt.
func (s *Sequence) PromptLen() int { return len(s.req.Prompt) }

// Length returns the committed length: the number of tokens in the caches.
func (s *Sequence) Length() int { return s.length }

// Params returns the sampling parameters.
func (s *Sequence) Params() sample.Params { return s.req.Params }

// Rule returns the acceptance rule: the request's, or the engine's default.
func (s *Sequence) Rule() Verifier { return s.rule }

// k is the most drafts per step that the scheduler plans for.
func (s *Sequence) k() int {
	if s.drafter == nil {
		return 0
	}
	return s.req.K
}

// space separates the prefix caches of sequences whose pages differ in what
// they hold: the layers of another device drafter.
func (s *Sequence) space() string {
	if s.drafter == nil || s.drafter.device == nil {
		return ""
	}
	return s.drafter.name
}

// Sampler returns the sequence's sampler, which knows its committed history.
func (s *Sequence) Sampler() *sample.Sampler { return s.sampler }

// Finish returns why the sequence ended, or "" while it runs. With FinishError,
// Err says more.
func (s *Sequence) Finish() Finish { return s.finish }

// Err returns the error that ended the sequence, if one did.
func (s *Sequence) Err() error { return s.err }

// NewSequence returns a sequence that no engine runs, for tests of drafters, rules
// and policies.
func NewSequence(id int64, req Request) *Sequence {
	return &Sequence{id: id, req: req, slot: -1, tokens: slices.Clone(req.Prompt), sampler: sample.New(req.Params, req.Prompt)}
}
