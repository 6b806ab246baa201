package engine

import (
	"fmt"

	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/kernels"
)

// Config sizes an engine. The zero value of a field takes the default in its
// comment.
type Config struct {
	// MaxTokens is the longest sequence, prompt and output, in tokens.
	// Default: the model's limit as it was loaded.
	MaxTokens int
	// MaxSequences is the number of sequences that run at once. Default 16.
	MaxSequences int
	// Pages is the number of KV pages of kernels.PageTokens positions.
	// Default: enough for MaxSequences sequences of MaxTokens.
	Pages int
	// BatchTokens is the token budget of a step: verification rows and
	// prefill rows together. Default 512 + MaxSequences*(MaxDraft+1).
	BatchTokens int
	// Chunk is the most prefill rows of one sequence in one step. Default 512.
	Chunk int
	// MaxDraft is the largest k that a request may ask for, at most 63.
	// Default 8.
	MaxDraft int
	// PrefixCache shares pages (and recurrent snapshots) of equal prefixes.
	PrefixCache bool
	// Snapshots is the number of recurrent snapshots that the prefix cache
	// may hold. Default 16 with PrefixCache, if the model is recurrent or a drafter
	// has caches of its own.
	Snapshots int
	// Policy names the order in which waiting requests are admitted, one of
	// sched.Policies. Default: the first of them.
	Policy string
	// PrefillShare is the percentage of a step's rows that prompts may have even
	// if drafts want them. Default 50.
	PrefillShare int
	// ExpectedOutput is the number of tokens that admission counts on for an
	// output of unknown length before it has seen some end. Default 256; -1
	// admits by the prompt alone.
	ExpectedOutput int
	// Sessions is the number of sessions whose pages are kept between their
	// requests. Default 64.
	Sessions int
	// Vocab is the number of token ids that have a token; larger ids are
	// never chosen. Default: the model's vocabulary.
	Vocab int
	// Tokens are the bytes of the tokens and the ids that end a text, for
	// requests with a grammar; nil refuses such requests.
	Tokens *grammar.Vocabulary
	// Lengths chooses draft lengths step by step; nil takes each request's K.
	Lengths Lengths
	// Loop decodes on the device where it can: while all sequences have rules with
	// a twin there, ends that the device sees, and one drafter that can be recorded
	// or drafts chains on the host (or none), the host only replays programs and
	// takes what they decided. Elsewhere it changes nothing. Backends without loops
	// ignore it.
	Loop bool
	// PromptLogits keeps room for the logits of every row of a step, so that
	// requests can observe those of their prompts.
	PromptLogits bool
	// Timeline, if not nil, notes what the engine does when. Steps are then not
	// captured.
	Timeline *Timeline
	// NoHash leaves the logits rows unhashed: records then prove nothing.
	NoHash bool
	// Interposer breaks the engine on purpose; nil in any engine that serves.
	Interposer Interposer
	// Ranks makes the engine one of several that run one model together; nil
	// in an engine that runs alone.
	Ranks Ranks
	// Drift lets the engine go on when the ranks decided differently, for
	// audits of what becomes of it.
	Drift bool
	// Now is the monotonic clock, in nanoseconds. Default: the system's.
	Now func() int64
}

func (c *Config) fill(maxTokens, vocab int, stateful bool) error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.MaxTokens, maxTokens)
	def(&c.MaxSequences, 16)
	def(&c.MaxDraft, 8)
	def(&c.Chunk, 512)
	def(&c.BatchTokens, 512+c.MaxSequences*(c.MaxDraft+1))
	def(&c.Pages, c.MaxSequences*c.slotPages())
	def(&c.Vocab, vocab)
	if c.Interposer == nil {
		c.Interposer = NoInterposer{}
	}
	if stateful && c.PrefixCache {
		def(&c.Snapshots, 16)
	} else {
		c.Snapshots = 0
	}
	for _, r := range []struct {
		name       string
		v, lo, hi  int
		constraint string
	}{
		{"max_tokens", c.MaxTokens, 1, maxTokens, "the model's context"},
		{"max_sequences", c.MaxSequences, 1, 1 << 16, ""},
		{"max_draft", c.MaxDraft, 1, kernels.WindowTokens - 1, "one window less one"},
		{"chunk", c.Chunk, 1, 1 << 20, ""},
		{"batch_tokens", c.BatchTokens, c.MaxDraft + 1, 1 << 20, "at least one verification"},
		{"pages", c.Pages, c.slotPages(), 1 << 24, "at least the longest sequence"},
		{"vocab", c.Vocab, 1, vocab, "the model's vocabulary"},
	} {
		if r.v < r.lo || r.v > r.hi {
			hint := ""
			if r.constraint != "" {
				hint = " (" + r.constraint + ")"
			}
			return fmt.Errorf("engine: %s is %d; it must be %d..%d%s", r.name, r.v, r.lo, r.hi, hint)
		}
	}
	return nil
}

// slotPages is the page table of the longest sequence, with the positions that
// drafts may touch past its end.
func (c *Config) slotPages() int {
	return (c.MaxTokens + c.MaxDraft + 2 + kernels.PageTokens - 1) / kernels.PageTokens
}
