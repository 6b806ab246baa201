package engine

import (
	"slices"

	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
)

// Finish says why a sequence ended.
type Finish string

// Reasons of a sequence's end.
const (
	FinishStop   Finish = "stop"      // an end-of-text or stop token
	FinishText   Finish = "stop_text" // what the request's Until looks for
	FinishLength Finish = "length"    // the token limit or the context's end
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
	// Until ends the output by what it says; nil leaves it to Stop and
	// MaxNew. It belongs to this request.
	Until Until
	// Grammar is Params.Grammar, compiled; nil leaves that to Submit, which
	// then takes its time.
	Grammar *grammar.Grammar
	// Salt separates the prefix cache of this request from that of requests
	// with another salt.
	Salt string
	// Session names the conversation that the prompt continues, so that the
	// pages of this request are kept for its next one; empty for none.
	Session string
	// Priority orders admission before the policy does, and preemption: see
	// sched.Request.
	Priority int
	// Observe, if not nil, is called for each token of the output, in order,
	// before the step's record: with the raw FP32 logits [vocab] that it was
	// chosen from, which are the engine's and to be read at once. A step that
	// fails later may have told of tokens that never reach the client.
	Observe func(id int32, logits []float32)
	// ObservePrompt, if not nil, is called likewise for each position of the prompt
	// but the first, with its token and the logits behind the tokens before it.
	// Positions that are taken from the prefix cache are not observed: give the
	// request a Salt of its own. After a preemption positions come again. It needs
	// Config.PromptLogits.
	ObservePrompt func(position int, logits []float32)
}

// Until ends an output at a text, say, that may lie across tokens.
type Until interface {
	// Push is told of the output's next tokens, each once. It returns how
	// many of them still belong to the output, and whether it ends there; it
	// is not called again then.
	Push(ids []int32) (n int, ended bool)
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
	looped      bool // a loop decodes it
	reach       int  // positions for which the loop has got it pages
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
// they hold, the layers of another device drafter, or that have another salt.
func (s *Sequence) space() string {
	name := ""
	if s.drafter != nil && s.drafter.device != nil {
		name = s.drafter.name
	}
	if s.req.Salt == "" {
		return name
	}
	return name + "\x00" + s.req.Salt
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
