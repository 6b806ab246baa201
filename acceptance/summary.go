package acceptance

import (
	"maps"
	"slices"

	"exacta.dev/exacta/engine"
)

// Summary is Stats as figures, for JSON. Means and shares of nothing are 0.
type Summary struct {
	Steps         int64                `json:"steps"`         // records
	Verifications int64                `json:"verifications"` // decode records
	Drafted       int64                `json:"drafted"`       // verifications of at least one draft
	Proposed      Sum[engine.Proposed] `json:"proposed"`
	Accepted      Sum[engine.Accepted] `json:"accepted"`
	RealAccepted  Sum[engine.Accepted] `json:"real_accepted"` // the real rule's; accepted unless simulated
	Emitted       Sum[engine.Emitted]  `json:"emitted"`
	// AcceptLength is the mean over verifications of accepted + 1 (each
	// verification weighs the same: micro), AcceptLengthMacro the mean over
	// requests of their means. EmittedPerVerification is less where stop or
	// length cut a verification's tokens.
	AcceptLength           float64 `json:"accept_length"`
	AcceptLengthMacro      float64 `json:"accept_length_macro"`
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
	Simulated            bool      `json:"simulated"`

	EngineSteps   int64   `json:"engine_steps"`
	TotalSeconds  float64 `json:"total_seconds"` // of engine steps
	DraftSeconds  float64 `json:"draft_seconds"`
	VerifySeconds float64 `json:"verify_seconds"`
	DraftShare    float64 `json:"draft_share"`    // of step time
	DecodeStepMs  float64 `json:"decode_step_ms"` // mean step without prefill
	DecodeTokS    float64 `json:"decode_tok_s"`   // tokens per second in such steps
}

// Summary computes the figures.
func (s *Stats) Summary() Summary {
	t := &s.times
	out := Summary{
		Steps: s.Steps, Verifications: s.Verifications, Drafted: s.Drafted,
		Proposed: s.Proposed, Accepted: s.Accepted, RealAccepted: s.RealAccepted, Emitted: s.Emitted,
		AcceptLength: s.AcceptLengths.Per(s.Verifications), AcceptLengthMacro: s.macro(),
		EmittedPerVerification: s.Verified.Per(s.Verifications), DraftAcceptRate: s.Accepted.Per(int64(s.Proposed)),
		AcceptanceByPosition: []float64{}, Conditional: []float64{}, Histogram: append([]int64{}, s.Histogram...),
		Preemptions: s.Preemptions, CachedTokens: s.CachedTokens, Simulated: s.Simulated,
		EngineSteps: t.Steps, TotalSeconds: float64(t.TotalNs) / 1e9, DraftSeconds: float64(t.DraftNs) / 1e9,
		VerifySeconds: float64(t.VerifyNs) / 1e9, DraftShare: ratio(t.DraftNs, t.TotalNs),
		DecodeStepMs: ratio(t.DecodeNs, t.DecodeSteps) / 1e6, DecodeTokS: 1e9 * t.DecodeToks.Per(t.DecodeNs),
	}
	for i, n := range s.Reached {
		all := at(s.Prefix, i)
		out.AcceptanceByPosition = append(out.AcceptanceByPosition, ratio(all, n))
		out.Conditional = append(out.Conditional, ratio(all, at(s.Tried, i)))
	}
	return out
}

// macro is the mean over requests of the mean accept length, summed in the order
// of the ids.
func (s *Stats) macro() float64 {
	sum, n := 0.0, 0
	for _, id := range slices.Sorted(maps.Keys(s.requests)) {
		if q := s.requests[id]; q.verifications > 0 {
			sum += q.lengths.Per(q.verifications)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}
