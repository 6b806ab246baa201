package audit

import (
	"context"
	"iter"
	"slices"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"
	"exacta.dev/exacta/kernels"
)

// Case is a run as an audit sees it: what was asked, what was recorded, what the
// client received, and a laboratory in which requests can be run again.
type Case struct {
	// Run is the run's id.
	Run string
	// Requests are what was asked and received, by request id.
	Requests map[string]*Request
	// Records streams the run's records in order, from the beginning each
	// time that it is called. After an error it ends.
	Records func() iter.Seq2[*engine.Record, error]
	// CutShort says that the run did not come to its end: requests may be
	// incomplete.
	CutShort bool
	// Claims are the figures that the run reported of itself, by point (see
	// PointOf; "" is the whole run); nil where it reported none.
	Claims map[string]Claim
	// Lab runs requests again; nil where there is no model to run them on,
	// with NoLab saying why.
	Lab   Lab
	NoLab string
	// Replay chooses what the audits replay.
	Replay Replay
	// Disagree says what of the run's other files does not go with its records,
	// each in a sentence.
	Disagree []string
	// Uncached says that no prefix cache was asked for: every prompt is read
	// whole.
	Uncached bool
	// Elsewhere says that the run was recorded on another machine: its times
	// are then not held against this one.
	Elsewhere bool

	retraces map[string]*retrace // by request
	costs    map[string]*draftCost
}

// Replay chooses how the tokens audit replays a run.
type Replay string

// Ways of replaying.
const (
	ReplayAuto   Replay = ""       // both up to plainTokens tokens, else forced
	ReplayForced Replay = "forced" // teacher forcing alone
	ReplayBoth   Replay = "both"   // and plain decoding of each request
)

// plainTokens is the largest run, in tokens, that is replayed plainly unasked.
const plainTokens = 20_000

// plainToo says whether plain decoding is replayed beside teacher forcing.
func (c *Case) plainToo() bool {
	if c.Replay != ReplayAuto {
		return c.Replay == ReplayBoth
	}
	n := 0
	for _, r := range c.Requests {
		n += len(r.Received)
	}
	return n <= plainTokens
}

// Request is what was asked of the engine, and what the client received.
type Request struct {
	ID     string
	Class  string  // of the prompt; may be empty
	Prompt []int32 // token ids
	MaxNew int
	Params sample.Params
	// Strategy is the index or name by which the Lab knows the draft
	// strategy with its settings; Drafter its registered name, "none" for
	// plain decoding.
	Strategy string
	Drafter  string
	K        int
	Rule     string
	// Full says that every step is to have K drafts, as far as the output has
	// room for them: no policy gives fewer.
	Full bool
	// Simulation is what a simulation was asked for; "" for real acceptance.
	Simulation string
	Stop       []int32
	IgnoreStop bool
	// Until makes what ends the output at a text; nil where nothing does.
	Until func() engine.Until
	// PromptLogits says that the logits of all rows of the prompt were computed.
	PromptLogits bool

	// Received are the tokens that reached the client, and Finish why they
	// ended; Ended is false where the client saw no end.
	Received []int32
	Finish   engine.Finish
	Ended    bool

	// steps are the run's verifications in order, for Lab.Again to follow;
	// nil lets the rule decide.
	steps []step
}

// Whole reports whether the client received all that it asked for.
func (r *Request) Whole() bool { return r.Ended && r.Finish != engine.FinishCancel }

// unheard reports whether the request was cancelled before anything came of it.
func (r *Request) unheard() bool { return r.Finish == engine.FinishCancel && len(r.Received) == 0 }

// step is where a verification began and how many drafts were planned for it.
type step struct{ position, planned int32 }

// StepLength returns how many tokens the run committed in the verification that
// began at a committed length of position, or natural where that is not known.
func (r *Request) StepLength(position, natural int) int {
	i, _ := slices.BinarySearchFunc(r.steps, int32(position)+1, bySteps)
	if i < len(r.steps) {
		return int(r.steps[i].position) - position
	}
	return natural
}

// StepDrafts returns how many drafts the run planned for the verification that
// began at a committed length of position, or natural where there was none.
func (r *Request) StepDrafts(position, natural int) int {
	if i, ok := slices.BinarySearchFunc(r.steps, int32(position), bySteps); ok {
		return int(r.steps[i].planned)
	}
	return natural
}

func bySteps(s step, position int32) int { return int(s.position - position) }

// Claim is a line of figures that a run reported.
type Claim struct {
	Tokens               int64
	AcceptLength         float64
	AcceptanceByPosition []float64
	Simulated, Lossy     bool
	Exact                *bool
	// Speeds are nil where none were reported.
	Speeds *Speeds
	// Classes are lines by class of prompt (Request.Class). They are told where
	// prompts are of two classes or more; nil where they never are.
	Classes map[string]ClassClaim
}

// Lab runs requests on the honest engine: the same model, backend and
// arithmetic, with nothing in its way.
type Lab interface {
	// Plain decodes the requests without drafts, each alone.
	Plain(ctx context.Context, reqs []*Request, rec engine.Recorder) error
	// Again runs the requests with their own strategy, k and rule, each
	// alone and without simulation, along what they received: every step
	// commits what the run committed there (Request.StepLength), whatever
	// the rule decides, and its record has the rule's own decision in
	// RealAccepted and RealNextID. So each step sees the tokens that the
	// run's step saw. A request without Received is simply run.
	Again(ctx context.Context, reqs []*Request, rec engine.Recorder) error
	// Force reads ids in prefill chunks and calls each for the rows from
	// position first on, in order.
	Force(ctx context.Context, ids []int32, first int, logits bool, each func(Row) error) error
	// Oracle returns the float64 logits that predict the token after ids.
	Oracle(ctx context.Context, ids []int32) ([]float32, error)
	// Cost returns what the target's pass over a batch of spans executes.
	Cost(spans []SpanCost) kernels.Counters
	// Roofline returns the bytes of weights per second that the machine
	// reads at best, measured when asked.
	Roofline() (bytesPerSecond float64)
}

// SpanCost is the part of a span that its cost depends on.
type SpanCost struct {
	Start, Rows, LogitRows int
	// Own is the number of pairs of a row of the span and a row that it
	// follows, or itself, in a tree; 0 is a chain, which has
	// Rows*(Rows+1)/2.
	Own int
	// Idle says that the rows belong to no sequence: they attend to nothing.
	Idle bool
}
