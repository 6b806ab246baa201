package acceptance

import (
	"maps"
	"slices"

	"exacta.dev/exacta/engine"
)

// Acceptance is what Stats knows of acceptance, as figures for JSON. Means and
// shares of nothing are 0.
//
// Four means of the accept length are in circulation; each has its own name
// here, and they differ as soon as outputs do.
type Acceptance struct {
	Steps         int64                `json:"steps"`         // records
	Verifications int64                `json:"verifications"` // decode records
	Drafted       int64                `json:"drafted"`       // verifications of at least one draft
	Proposed      Sum[engine.Proposed] `json:"proposed"`
	Accepted      Sum[engine.Accepted] `json:"accepted"`
	RealAccepted  Sum[engine.Accepted] `json:"real_accepted"` // the real rule's; accepted unless simulated
	Emitted       Sum[engine.Emitted]  `json:"emitted"`
	// AcceptLength is the mean over verifications of accepted + 1: every
	// verification weighs the same (micro, MAT). It is the one that speed
	// follows from.
	AcceptLength float64 `json:"accept_length"`
	// AcceptLengthMacro is the mean over requests of their means: every
	// request weighs the same.
	AcceptLengthMacro float64 `json:"accept_length_macro"`
	// AcceptLengthTokenWeighted is the mean over requests of their means,
	// weighted by the tokens that they decided: long outputs count more.
	AcceptLengthTokenWeighted float64 `json:"accept_length_token_weighted"`
	// AcceptLengthPerToken is the mean over tokens of the accept length of
	// the verification that decided the token: the sum of the squares over
	// the sum. It is never below AcceptLength.
	AcceptLengthPerToken float64 `json:"accept_length_per_token"`
	// EmittedPerVerification is less than AcceptLength where stop or length
	// cut a verification's tokens.
	EmittedPerVerification float64 `json:"emitted_per_verification"`
	// DraftAcceptRate is accepted / proposed: no bonus in it.
	DraftAcceptRate float64 `json:"draft_accept_rate"`
	// AcceptanceByPosition[i]: of the verifications with more than i drafts,
	// the share in which drafts 0..i were all accepted. Conditional: of
	// those in which drafts 0..i-1 were.
	AcceptanceByPosition []float64 `json:"acceptance_by_position"`
	Conditional          []float64 `json:"acceptance_conditional"`
	Histogram            []int64   `json:"histogram"` // verifications by accepted drafts
	Preemptions          int64     `json:"preemptions"`
	CachedTokens         int64     `json:"cached_tokens"`
	// Lossy says that the rule accepts what the target would not have said.
	Lossy      bool   `json:"lossy"`
	Simulated  bool   `json:"simulated"`
	Simulation string `json:"simulation"` // what it was asked for; empty unless simulated
}

// Summary is Stats as figures, for JSON: acceptance and the times of steps. The
// times are those of whole engine steps, so they are of use where the steps
// belong to the records alone: by point, not by class or prompt.
type Summary struct {
	Acceptance
	EngineSteps   int64   `json:"engine_steps"`
	TotalSeconds  float64 `json:"total_seconds"` // of engine steps
	DraftSeconds  float64 `json:"draft_seconds"`
	VerifySeconds float64 `json:"verify_seconds"`
	DraftShare    float64 `json:"draft_share"`    // of step time
	DecodeStepMs  float64 `json:"decode_step_ms"` // mean step without prefill
	DecodeTokS    float64 `json:"decode_tok_s"`   // tokens per second in such steps
}

// Acceptance computes the figures of acceptance.
func (s *Stats) Acceptance() Acceptance {
	out := Acceptance{
		Steps: s.Steps, Verifications: s.Verifications, Drafted: s.Drafted,
		Proposed: s.Proposed, Accepted: s.Accepted, RealAccepted: s.RealAccepted, Emitted: s.Emitted,
		AcceptLength:         s.AcceptLengths.Per(s.Verifications),
		AcceptLengthPerToken: ratio(s.Squares, int64(s.AcceptLengths)), EmittedPerVerification: s.Verified.Per(s.Verifications),
		DraftAcceptRate:      s.Accepted.Per(int64(s.Proposed)),
		AcceptanceByPosition: []float64{}, Conditional: []float64{}, Histogram: append([]int64{}, s.Histogram...),
		Preemptions: s.Preemptions, CachedTokens: s.CachedTokens, Lossy: s.Lossy, Simulated: s.Simulated, Simulation: s.Simulation,
	}
	out.AcceptLengthMacro, out.AcceptLengthTokenWeighted = s.overRequests()
	for i, n := range s.Reached {
		all := at(s.Prefix, i)
		out.AcceptanceByPosition = append(out.AcceptanceByPosition, ratio(all, n))
		out.Conditional = append(out.Conditional, ratio(all, at(s.Tried, i)))
	}
	return out
}

// Summary computes the figures.
func (s *Stats) Summary() Summary {
	t := &s.times
	return Summary{
		Acceptance:  s.Acceptance(),
		EngineSteps: t.Steps, TotalSeconds: float64(t.TotalNs) / 1e9, DraftSeconds: float64(t.DraftNs) / 1e9,
		VerifySeconds: float64(t.VerifyNs) / 1e9, DraftShare: ratio(t.DraftNs, t.TotalNs),
		DecodeStepMs: ratio(t.Decode.TotalNs, t.Decode.Steps) / 1e6, DecodeTokS: t.Decode.TokS(),
	}
}

// overRequests is the mean over requests of the mean accept length, plain and
// weighted by tokens, both summed in the order of the ids.
func (s *Stats) overRequests() (macro, weighted float64) {
	n := 0
	for _, id := range slices.Sorted(maps.Keys(s.requests)) {
		if q := s.requests[id]; q.verifications > 0 {
			mean := q.lengths.Per(q.verifications)
			macro += mean
			weighted += float64(float64(q.lengths) * mean)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return macro / float64(n), weighted / float64(s.AcceptLengths)
}
