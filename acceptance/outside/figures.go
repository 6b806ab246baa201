package outside

// Figures are what one level shows, in the units of the records: rates by
// position unconditional (of all steps) and conditional (of those that got as
// far).
type Figures struct {
	Concurrency int     `json:"concurrency"`
	Mode        Mode    `json:"mode"`
	Requests    int     `json:"requests"`
	Tokens      int     `json:"tokens"`
	Pieces      int     `json:"pieces"`
	PerPiece    float64 `json:"tokens_per_piece,omitempty"`
	K           int     `json:"k,omitempty"`
	KFrom       string  `json:"k_from,omitempty"`

	// The following are the server's counters, or the sums of what it said
	// request by request.
	Steps        *float64  `json:"steps,omitempty"`
	Proposed     *float64  `json:"proposed,omitempty"`
	Accepted     *float64  `json:"accepted,omitempty"`
	AcceptLength *float64  `json:"accept_length,omitempty"`
	AcceptRate   *float64  `json:"accept_rate,omitempty"`
	Histogram    []float64 `json:"histogram,omitempty"` // steps by accepted drafts
	ByPosition   []float64 `json:"acceptance_by_position,omitempty"`
	Conditional  []float64 `json:"conditional_acceptance,omitempty"`
	MsPerStep    *float64  `json:"ms_per_step,omitempty"` // median gap between bursts
	MsPerToken   *float64  `json:"ms_per_token,omitempty"`
}

// figures derives a level's figures from totals.
func (t *totals) figures(l *Level) Figures {
	f := Figures{
		Concurrency: l.Concurrency, Mode: l.Mode, Requests: t.requests, Tokens: t.tokens, Pieces: t.pieces,
		K: t.k, KFrom: t.kFrom, Steps: t.steps, Proposed: t.proposed, Accepted: t.accepted,
	}
	if t.pieces > 0 && t.known {
		f.PerPiece = float64(t.pieceTokens) / float64(t.pieces)
	}
	if t.steps != nil && t.accepted != nil && *t.steps > 0 {
		f.AcceptLength = ptr(1 + *t.accepted / *t.steps)
	}
	if t.proposed != nil && t.accepted != nil && *t.proposed > 0 {
		f.AcceptRate = ptr(*t.accepted / *t.proposed)
	}
	joint := t.joint()
	if t.steps == nil || *t.steps == 0 || len(joint) == 0 {
		return f
	}
	before := *t.steps
	for i, n := range joint {
		f.ByPosition = append(f.ByPosition, n / *t.steps)
		if before > 0 {
			f.Conditional = append(f.Conditional, n/before)
		}
		next := 0.0
		if i+1 < len(joint) {
			next = joint[i+1]
		}
		if i == 0 {
			f.Histogram = append(f.Histogram, *t.steps-n)
		}
		f.Histogram = append(f.Histogram, n-next)
		before = n
	}
	if t.decodeSeconds > 0 && t.tokens > t.requests {
		f.MsPerToken = ptr(1000 * t.decodeSeconds / float64(t.tokens-t.requests))
	}
	return f
}

func ptr[T any](v T) *T { return &v }
