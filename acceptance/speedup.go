package acceptance

// Speedup sets the speed-up of a point that follows from its acceptance and its
// measured costs against the one that was measured. All of it is over decoding
// steps (those without prefill), rounds pooled.
//
//	expected = accept length × plain step / (draft + verify step)
//	measured = decode tok/s / plain decode tok/s
//
// The two differ by three causes, each of which is measured as a factor, and by
// what no figure accounts for:
//
//	measured / expected = overhead × occupancy × cut × (1 + unexplained)
//
// (Y. Leviathan, M. Kalman, Y. Matias, Fast inference from transformers via
// speculative decoding, ICML 2023, theorem 3.8, with measured costs in the place
// of the cost coefficient.) The costs are means over the steps as they were, of
// the widths that they had, in sequences and rows.
type Speedup struct {
	Point       string `json:"point"`
	Plain       string `json:"plain"` // the point that it is compared with
	Concurrency int    `json:"concurrency"`
	Lossy       bool   `json:"lossy"`
	Simulated   bool   `json:"simulated"`
	Simulation  string `json:"simulation"`
	// AcceptLength is over all verifications, those beside prefill included.
	AcceptLength float64 `json:"accept_length"`
	Width        float64 `json:"width"` // mean rows of a verification: executed drafts + 1
	PlainStepMs  float64 `json:"plain_step_ms"`
	DraftStepMs  float64 `json:"draft_step_ms"`
	VerifyStepMs float64 `json:"verify_step_ms"`
	StepMs       float64 `json:"step_ms"` // the whole step
	Expected     float64 `json:"expected"`
	Measured     float64 `json:"measured"`
	// Overhead is (draft + verify) / step: less than 1 where time goes into
	// neither.
	Overhead float64 `json:"overhead"`
	// Occupancy is sequences per step over those of the plain point: the
	// end of a run has fewer in flight, and a faster run a longer such end.
	Occupancy float64 `json:"occupancy"`
	// Cut is emitted tokens per verification over the accept length: less
	// than 1 where stop or length cut decided tokens.
	Cut float64 `json:"cut"`
	// Unexplained is the rest, 0.02 for 2 % more than is explained. What it
	// can hold: verifications beside prefill that accepted more or less than
	// the others, and a plain point that emitted other than 1 a step.
	Unexplained float64 `json:"unexplained"`
	// Why says why there is no comparison; the figures are 0 then.
	Why string `json:"why,omitempty"`
}

// Speedups computes the speed-ups of the points of a Group by ByPooledPoint, each
// against plain decoding at the same concurrency: the plain point of its own
// rule, or else the first. Plain points, and those whose names give no concurrency
// (references among them), have no line.
func Speedups(g *Group) []Speedup {
	out := []Speedup{}
	for _, name := range g.Order {
		p := ParsePoint(name)
		if p.Plain || p.Concurrency == 0 {
			continue
		}
		plain := plainOf(g, p)
		if plain == "" {
			s := g.By[name]
			out = append(out, Speedup{Point: name, Concurrency: p.Concurrency, Lossy: s.Lossy, Simulated: s.Simulated, Simulation: s.Simulation, Why: "the run has no plain point at this concurrency"})
			continue
		}
		s := NewSpeedup(g.By[name], g.By[plain])
		s.Point, s.Plain, s.Concurrency = name, plain, p.Concurrency
		out = append(out, s)
	}
	return out
}

func plainOf(g *Group, p Point) string {
	first := ""
	for _, name := range g.Order {
		q := ParsePoint(name)
		switch {
		case !q.Plain || q.Concurrency != p.Concurrency:
		case q.Rule == p.Rule:
			return name
		case first == "":
			first = name
		}
	}
	return first
}

// NewSpeedup computes the speed-up of a point over plain decoding. The names are
// left empty.
func NewSpeedup(point, plain *Stats) Speedup {
	c, base := point.Costs(), plain.Costs()
	out := Speedup{Lossy: point.Lossy, Simulated: point.Simulated, Simulation: point.Simulation}
	switch {
	case base.Steps == 0 || base.TotalNs == 0 || base.Emitted == 0:
		out.Why = "the plain point has no step without prefill"
	case c.Steps == 0 || c.DraftNs+c.VerifyNs == 0 || c.TotalNs == 0:
		out.Why = "the point has no step without prefill"
	case plain.Simulated:
		out.Why = "the plain point is simulated"
	}
	if out.Why != "" {
		return out
	}
	out.AcceptLength = point.AcceptLengths.Per(point.Verifications)
	out.Width = ratio(c.Rows, c.Verifications)
	out.PlainStepMs = ratio(base.TotalNs, base.Steps) / 1e6
	out.DraftStepMs, out.VerifyStepMs = ratio(c.DraftNs, c.Steps)/1e6, ratio(c.VerifyNs, c.Steps)/1e6
	out.StepMs = ratio(c.TotalNs, c.Steps) / 1e6
	out.Expected = out.AcceptLength * out.PlainStepMs / (out.DraftStepMs + out.VerifyStepMs)
	out.Measured = c.TokS() / base.TokS()
	out.Overhead = ratio(c.DraftNs+c.VerifyNs, c.TotalNs)
	out.Occupancy = ratio(c.Verifications, c.Steps) / ratio(base.Verifications, base.Steps)
	out.Cut = point.Verified.Per(point.Verifications) / out.AcceptLength
	if explained := out.Expected * out.Overhead * out.Occupancy * out.Cut; explained > 0 {
		out.Unexplained = out.Measured/explained - 1
	}
	return out
}
