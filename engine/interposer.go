package engine

import "exacta.dev/exacta/kernels"

// Interposer stands between the parts of a step. An engine that serves has
// none: it exists so that the fault suite can break the engine's own code in
// the ways in which engines were broken, and show which audit notices. Embed
// NoInterposer and override the points that a fault needs. Calls come from the
// engine loop, one at a time.
type Interposer interface {
	// Queue may wrap the queue that the engine and its model record to.
	Queue(q kernels.Queue) kernels.Queue
	// Draft may change what a drafter proposed for seq, of at most k tokens,
	// before it is verified.
	Draft(seq *Sequence, k int, d Draft) Draft
	// Span may change the rows that are computed for a decoding sequence:
	// the position of the first and the tokens. It returns at most as many
	// tokens as it is given.
	Span(seq *Sequence, start int, tokens []int32) (int, []int32)
	// LogitRows may lower the number of a decode span's rows, counted from
	// its first, whose logits are computed and judged.
	LogitRows(seq *Sequence, rows int) int
	// Verdict may replace the decision on a decoding sequence.
	Verdict(seq *Sequence, v *Verification, d Verdict) Verdict
	// Emit may change what reaches the client after the rule's decision,
	// and why the sequence ends ("" if it goes on). decided are the
	// accepted drafts and the next token, emit what stop and length cuts
	// leave of them.
	Emit(seq *Sequence, decided, emit []int32, why Finish) ([]int32, Finish)
	// Keep may change how many of a span's rows are committed to the caches.
	Keep(seq *Sequence, rows, kept int) int
	// Keys may change the tokens by which the prefix cache knows a
	// sequence: its prompt at first, then what each step emitted.
	Keys(seq *Sequence, tokens []int32) []int32
	// Count may change the counts of a record as the engine makes it.
	Count(seq *Sequence, r *Record)
}

// NoInterposer changes nothing.
type NoInterposer struct{}

var _ Interposer = NoInterposer{}

// Queue implements Interposer.
func (NoInterposer) Queue(q kernels.Queue) kernels.Queue { return q }

// Draft implements Interposer.
func (NoInterposer) Draft(_ *Sequence, _ int, d Draft) Draft { return d }

// Span implements Interposer.
func (NoInterposer) Span(_ *Sequence, start int, tokens []int32) (int, []int32) {
	return start, tokens
}

// LogitRows implements Interposer.
func (NoInterposer) LogitRows(_ *Sequence, rows int) int { return rows }

// Verdict implements Interposer.
func (NoInterposer) Verdict(_ *Sequence, _ *Verification, d Verdict) Verdict { return d }

// Emit implements Interposer.
func (NoInterposer) Emit(_ *Sequence, _, emit []int32, why Finish) ([]int32, Finish) {
	return emit, why
}

// Keep implements Interposer.
func (NoInterposer) Keep(_ *Sequence, _, kept int) int { return kept }

// Keys implements Interposer.
func (NoInterposer) Keys(_ *Sequence, tokens []int32) []int32 { return tokens }

// Count implements Interposer.
func (NoInterposer) Count(*Sequence, *Record) {}
