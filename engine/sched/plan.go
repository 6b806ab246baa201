package sched

// Phase says what kind of work an item is.
type Phase uint8

// Phases of a sequence.
const (
	// Prefill computes tokens that are known already: a chunk of the prompt,
	// or after a preemption of the prompt and the output so far.
	Prefill Phase = iota + 1
	// Decode computes the pending token, which is the last known one, and
	// drafts after it.
	Decode
)

// String returns the phase in lower case.
func (p Phase) String() string {
	switch p {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return "none"
}

// Item is the work of one sequence in a step: one span.
type Item struct {
	ID    int64
	Slot  int
	Phase Phase
	// Start is the position of the span's first row: the sequence's
	// committed length.
	Start int
	// Rows is the number of known tokens to compute, from Start on: the
	// prefill chunk; 1, the pending token, when decoding.
	Rows int
	// K is the number of drafts that may follow the pending token; fewer may
	// be verified. 0 when prefilling.
	K int
	// Last: the chunk ends the known tokens, so the logits of its last row
	// are wanted and give the next token. Always true when decoding.
	Last bool
	// Cached is the number of tokens taken from the prefix cache by the
	// admission that this item is the first of; else 0.
	Cached int
}

// OpKind is a kind of cache operation, named for the Queue's method.
type OpKind uint8

// Kinds of cache operations.
const (
	Reset    OpKind = iota + 1 // empty Slot
	SetPages                   // write Pages into Slot's page table from entry First on
	Restore                    // copy Snapshot to Slot and set its length to Length
	Save                       // copy Slot's recurrent states to Snapshot; the length is Length
)

// String returns the kind as it is written in traces.
func (k OpKind) String() string {
	switch k {
	case Reset:
		return "reset"
	case SetPages:
		return "pages"
	case Restore:
		return "restore"
	case Save:
		return "save"
	}
	return "none"
}

// Op is an operation on the backend's caches. Fields that its kind does not
// name are zero; Snapshot is -1 for a Restore that is only of attention
// layers.
type Op struct {
	Kind     OpKind
	ID       int64 // the sequence
	Slot     int
	First    int
	Pages    []int32
	Snapshot int
	Length   int
}

// Plan is what to do in one step. It is the caller's.
type Plan struct {
	// Step counts plans, from 0.
	Step int64
	// Preempted are the sequences whose memory was taken back, in the order
	// of preemption. They will be planned again from position 0, or from a
	// prefix hit, and so may only be told apart from new ones by their ID.
	Preempted []int64
	// Before are the operations to record before the step, in order.
	Before []Op
	// Items are the spans: decoding sequences first, then prefill chunks,
	// each in order of admission. With no items there is nothing to do.
	Items []Item
	// After are the operations to record after the step's commit, in order.
	After []Op

	// Counts for logs, as of this step.
	Waiting, Running     int // sequences, after admission and preemption
	DecodeRows           int // pending tokens and drafts
	PrefillRows          int
	FreePages, IdlePages int // unused; kept by the prefix cache alone
	// Blocked is the first waiting sequence that was looked at and not
	// admitted.
	Blocked Block
}

// BlockedBy is a reason why a sequence waits.
type BlockedBy uint8

// Reasons why a sequence waits.
const (
	// Open: none was turned away; the queue is empty, or found the slots, or
	// the rows or spans of the step, used up.
	Open          BlockedBy = iota
	NoPages                 // it needs more pages than are unused
	PrefixPending           // its prefix is being computed by another sequence
	OutputPages             // the outputs expected of it and of the others would need more pages than there are
)

// String returns the reason as it is written in traces.
func (b BlockedBy) String() string {
	switch b {
	case NoPages:
		return "no pages"
	case PrefixPending:
		return "prefix pending"
	case OutputPages:
		return "output pages"
	}
	return "open"
}

// Block says which sequence waits for what.
type Block struct {
	ID  int64
	Why BlockedBy
	// Need and Available are pages. When Why is NoPages, Available are the
	// unused ones, and Need includes the spare that running sequences may grow
	// into; when it is OutputPages, they are those needed at the fullest time
	// to come, and all.
	Need, Available int
}

// Result is the outcome of one item.
type Result struct {
	ID int64
	// Kept is the number of rows committed: the whole chunk when
	// prefilling; 1 + accepted drafts when decoding.
	Kept int
	// Tokens are the tokens that became known in this step: accepted drafts
	// and the next token, Kept of them; the next token for the chunk that
	// ends a prefill, else none. A sequence that is done may have fewer (cut
	// at a stop), or none and Kept 0 (it failed). They are copied.
	Tokens []int32
	// Done: the sequence is complete. One that has reached its MaxLen is
	// done without it.
	Done bool
}
