package engine

import "exacta.dev/exacta/kernels"

// Phase says what kind of work a record is about.
type Phase string

// Phases of a sequence's step.
const (
	// Prefill is a chunk of the prompt (or of a recomputed sequence). The
	// last chunk also yields a token, with k = 0.
	Prefill Phase = "prefill"
	// Decode is a step with one pending token and k drafts, k >= 0.
	Decode Phase = "decode"
)

// NextKind says how the token after the accepted drafts came about.
type NextKind string

// Kinds of the next token.
const (
	// NextBonus follows a draft that was accepted whole (k >= 1).
	NextBonus NextKind = "bonus"
	// NextCorrection replaces the first rejected draft.
	NextCorrection NextKind = "correction"
	// NextSampled is the token of a step without drafts.
	NextSampled NextKind = "sampled"
	// NextNone: a prefill chunk that yields no token.
	NextNone NextKind = "none"
)

// Record is what is logged for one sequence in one step: the only source of
// every acceptance figure. Slices belong to the record from then on.
type Record struct {
	Request  string // request id
	Sequence int64  // sequence number within the run
	Step     int64  // engine step, from 0
	SeqStep  int32  // step of this sequence, from 0
	Phase    Phase

	Batch         int32 // spans in the step's batch
	BatchRows     int32 // rows in the step's batch
	IdleRows      int32 // rows computed beside those for no sequence: a captured program has as many as its largest batch
	PrefillTokens int32 // prefill rows in the step, over all sequences
	Position      int32 // committed length of the sequence at the step's start
	Rows          int32 // rows executed for this sequence: k executed + 1, or the chunk
	Cached        int32 // prompt tokens taken from the prefix cache (first record)
	Preemptions   int32 // times the sequence was preempted so far

	Drafter   string
	Rule      string
	KPlanned  int32
	KExecuted int32 // the most drafts that could be accepted: those on the longest path
	TreeNodes int32 // drafts verified; KExecuted for a chain

	// ProposedIDs are the draft ids, TreeNodes of them. The accepted ones come
	// first, in order of position, the others in the drafter's order.
	ProposedIDs []int32
	// Parents has for each of ProposedIDs the index of the one that it
	// follows, or -1 for the pending token; empty for a chain. Row 0 of the
	// step is the pending token's, row i+1 that of ProposedIDs[i].
	Parents    []int32
	TargetIDs  []int32 // the target's choice (argmax, or the rule's sample) at each row along the accepted path, or at every row
	Accepted   Accepted
	NextID     int32
	NextKind   NextKind
	EmittedIDs []int32 // tokens that reached the client in this step, in order

	// Lossy says that the rule is one whose output is not the target's; see
	// the function Lossy.
	Lossy bool

	Simulated      bool
	Simulation     string   // what the simulation was asked for; "" when not simulated
	RealAccepted   Accepted // what the real rule decided
	RealNextID     int32    // its next token; equal to NextID when not simulated
	ForcedAccepted Accepted // what a simulation forced; equal when not simulated

	// RankHashes has a hash of the sequence's outcome in this step (accepted,
	// next token, emitted tokens: OutcomeHash) as each rank decided it, by
	// rank; empty where the engine is one rank. The record is rank 0's.
	RankHashes []uint64

	Gaps   []float32 // top-1 minus top-2 logit at each row that wanted logits
	Hashes []uint64  // kernels.HashRow of each such row

	DraftNs  int64 // the step's drafting time, all sequences of this drafter
	VerifyNs int64 // the step's target pass and verdicts
	TotalNs  int64 // the whole step

	// DraftWork and TargetWork are what the backend executed in the step,
	// all sequences together: for drafting and for levelling the drafters'
	// caches, and for the target's pass, its statistics and the rules.
	DraftWork, TargetWork kernels.Counters
}

// Parent returns the index of the draft that draft i follows, or -1 for the pending
// token.
func (r *Record) Parent(i int) int {
	if len(r.Parents) == 0 {
		return i - 1
	}
	return int(r.Parents[i])
}

// Leaf says whether no draft follows the last accepted one.
func (r *Record) Leaf() bool {
	for i := int(r.Accepted); i < len(r.ProposedIDs) && (len(r.Parents) == 0 || i < len(r.Parents)); i++ {
		if r.Parent(i) == int(r.Accepted)-1 {
			return false
		}
	}
	return true
}

// Emitted returns the number of tokens that reached the client.
func (r *Record) Emitted() Emitted { return Emitted(len(r.EmittedIDs)) }

// Recorder takes the records of a run, in step order. Record must not keep r
// itself, but may keep its slices.
type Recorder interface {
	Record(r *Record) error
}

// RecorderFunc is a function that is a Recorder.
type RecorderFunc func(r *Record) error

// Record calls f.
func (f RecorderFunc) Record(r *Record) error { return f(r) }
