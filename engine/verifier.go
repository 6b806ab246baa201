package engine

import "exacta.dev/exacta/engine/sample"

// Verification is what a rule sees of one sequence in one step.
type Verification struct {
	Seq   *Sequence
	Draft Draft
	// Position is the committed length at the step's start: the pending
	// token's position. Row 0 is the pending token's and row i+1 that of
	// draft i: it holds the target's view after that draft and those that it
	// follows.
	Position int
	// Argmax is the target's largest logit at each of the len(Draft)+1 rows.
	Argmax []int32
	// Logits returns the raw FP32 logits of a row, cut to the tokenizer's
	// vocabulary; nil unless the rule asked for them (NeedsLogits). The
	// slice is the engine's and may be overwritten by the rule.
	Logits func(row int) []float32
	// Sampler processes logits as plain decoding would at each row: penalties
	// over the history that includes the drafts before the row, temperature,
	// top-k, top-p, min-p, and the random streams.
	Sampler *sample.Sampler
}

// Verdict is what a rule decided.
type Verdict struct {
	Accepted Accepted
	// Path are the accepted drafts, by index in Draft.Tokens and in order of
	// position. Nil means the first Accepted ones.
	Path []int32
	Next int32
	Kind NextKind
	// Targets is the target's choice (argmax, or its sample) at each row
	// along the path, or at every row, by its index. May alias
	// Verification.Argmax.
	Targets []int32
	// Simulation is set by a rule that forces its outcome: Accepted, Next
	// and Kind are then the forced ones. Nil is a decision of the rule.
	Simulation *Simulation
}

// Simulation stamps a verdict that was forced, and keeps the decision that it
// replaced.
type Simulation struct {
	// Spec is what was asked for, as a configuration gives it:
	// "length=2.6" or "rates=0.9,0.5". Every record carries it.
	Spec string
	// Real and RealNext are what the rule decided on the same rows.
	Real     Accepted
	RealNext int32
}

// Verifier is an acceptance rule.
type Verifier interface {
	// Name is the rule's registered name.
	Name() string
	// NeedsLogits says whether Verify will read logits for these parameters.
	NeedsLogits(p sample.Params) bool
	// Exact says whether the output for these parameters equals, token for
	// token, that of plain decoding with the same seed.
	Exact(p sample.Params) bool
	// Verify decides. It must be a function of its argument alone.
	Verify(v *Verification) (Verdict, error)
}

// Twin says how a device decides what a rule does, without the host: drafts stand
// while they are the target's choice.
type Twin uint8

// Twins of rules.
const (
	NoTwin     Twin = iota // the host decides
	ArgmaxTwin             // the choice is the argmax
	DrawTwin               // the choice is drawn: kernels.DrawRow
)

// twinned is a Verifier with a twin on the device for requests with some parameters.
type twinned interface {
	Twin(p sample.Params) Twin
}

// twin returns the device's twin of a sequence's rule.
func (s *Sequence) twin() Twin {
	if t, ok := s.rule.(twinned); ok {
		return t.Twin(s.req.Params)
	}
	return NoTwin
}

// Lossy reports whether a rule says of itself, by a method Lossy, that it accepts
// drafts which the target would not have said: its output is neither that of plain
// decoding nor of its distribution, whatever the request's parameters. Every record
// of such a rule is stamped, and nothing that it took part in is called exact.
func Lossy(rule Verifier) bool {
	l, ok := rule.(interface{ Lossy() bool })
	return ok && l.Lossy()
}
