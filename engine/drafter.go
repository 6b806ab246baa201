package engine

import "exacta.dev/exacta/kernels"

// Draft is what a drafter proposes for one sequence: a chain or a tree of tokens
// that may follow the pending token. An empty draft means that the sequence
// decodes plainly in this step.
type Draft struct {
	Tokens []int32
	// Parents[i], if Parents is not nil, is the index in Tokens of the token
	// that Tokens[i] follows, below i, or -1 for the pending token. Tokens
	// with one parent are alternatives; those that come first are tried
	// first. Nil is a chain: each token follows the one before it.
	Parents []int32
	// Probs[i], if Probs is not nil, is the distribution that Tokens[i] was
	// sampled from, over the whole vocabulary, after the request's own
	// processing, given the tokens that it follows and its siblings before
	// it: a sibling drawn without replacement has a distribution without
	// those. Whether a token gets successors, and how many, may depend on
	// what was drawn before them, never on what they are: none that was
	// drawn is left out.
	// Nil means that the drafter was certain (one-hot), as n-gram and greedy
	// drafters are.
	Probs [][]float32
	// Expect is the drafter's own estimate of how many of Tokens will be
	// accepted; 0 where it has none.
	Expect float32
}

// Ask asks for a draft of at most K tokens for one sequence; a tree has at most K
// in all.
type Ask struct {
	Seq *Sequence // read only
	K   int
	// Draft is the answer. Its slices may be reused by the drafter at the
	// next Propose.
	Draft Draft
}

// Span is the host's view of one span of a step: rows that entered, or may
// enter, a sequence's cache.
type Span struct {
	Seq *Sequence
	// Start is the position of the first row, RowOff its index in the batch.
	Start, RowOff int
	// Tokens are the span's tokens: a prefill chunk, or the pending token
	// and the drafts. Of a tree they are the kept ones alone.
	Tokens []int32
	// Kept is the number of rows that were committed. Next is the token at
	// position Start+Kept: the next prompt token inside a prompt, else the
	// verdict's.
	Kept int
	Next int32
}

// Step tells a drafter what the target has just committed. It is the only way
// that a drafter learns: prefill chunks, first tokens and verified runs all
// come this way, in order of position, so a rejected token never reaches a
// drafter's state.
type Step struct {
	Queue kernels.Queue
	// Spans are this drafter's spans of the step.
	Spans []Span
	// Batch is the device's view of the same spans, with Kept and Next (I32
	// [Spans, 1]) in backend memory, and Hidden the final normed hidden
	// states of its rows, BF16 [Rows, hidden]. Taps are the residual streams
	// that the drafter taps, side by side, BF16 [Rows, hidden*layers]. All
	// are overwritten by the next step: operations that read them are
	// recorded now.
	Batch                    kernels.Batch
	Kept, Next, Hidden, Taps kernels.Buf
}

// Drafter proposes drafts for the sequences of one engine. Its methods are
// called by the engine loop, one at a time.
type Drafter interface {
	// Name is the strategy's registered name.
	Name() string
	// Committed tells what entered the caches, after a step in which any of
	// this drafter's sequences took part. A DeviceDrafter is told of decode
	// steps that planned no drafts later, of several at once, but before
	// Propose, Save or a loop of the sequence.
	Committed(s *Step) error
	// Propose fills in the drafts of the asks.
	Propose(q kernels.Queue, asks []*Ask) error
	// Release forgets a sequence: finished, cancelled or preempted. A
	// preempted sequence comes again through Committed from position 0 (or
	// from a prefix-cache hit).
	Release(seq *Sequence)
}

// DeviceDrafter is a drafter that keeps caches of its own behind the seam,
// level with the target's.
type DeviceDrafter interface {
	Drafter
	// Layers returns the cache layers that it needs.
	Layers() []kernels.LayerSpec
	// TapLayers says where the residual stream of the target is tapped for
	// it (Step.Taps), by the number of layers run before; nil for nowhere.
	TapLayers() []int
	// Attach gives it the caches, with its first layer's index, and the
	// largest batch (spans, rows) that it will see; it allocates here.
	Attach(c kernels.Caches, first, spans, rows int) error
	// Follow is called behind the target's pass over a batch, before anything
	// of it is committed: a drafter with layers that hold a place for each
	// token, as the target's do, records a pass of its own over the rows of
	// b, and Commit makes the kept ones part of its layers too. It is the
	// only way to feed layers with a recurrent state. In b the spans of other
	// sequences are idle. It reports whether it recorded anything; other
	// drafters do nothing.
	Follow(q kernels.Queue, b *kernels.Batch) bool
	// Detach frees what Attach allocated, whether or not Attach succeeded;
	// the engine is closing.
	Detach()
	// Save and Restore keep what it needs beside its layers in step with the
	// prefix cache's snapshots: Save runs when the slot's length is a
	// border, Restore after the target's. next is the token at the restored
	// length.
	Save(q kernels.Queue, seq *Sequence, snapshot int) error
	Restore(q kernels.Queue, seq *Sequence, snapshot int, next int32) error
}
