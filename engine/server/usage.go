package server

import "time"

// usage is what a request cost.
type usage struct {
	Prompt     int               `json:"prompt_tokens"`
	Completion int               `json:"completion_tokens"`
	Total      int               `json:"total_tokens"`
	Details    *promptDetails    `json:"prompt_tokens_details,omitempty"`
	Draft      *speculationUsage `json:"speculation,omitempty"`
	Timings    *timings          `json:"timings,omitempty"`
}

type promptDetails struct {
	Cached int `json:"cached_tokens"`
}

// speculationUsage is what drafting came to, over all answers of a request.
type speculationUsage struct {
	Strategy string `json:"strategy"`
	K        int    `json:"k"`
	Rule     string `json:"rule"`
	// Steps are verifications, Drafted the draft tokens in them, Accepted those
	// that stood, Emitted all tokens of the answers.
	Steps    int `json:"steps"`
	Drafted  int `json:"drafted"`
	Accepted int `json:"accepted"`
	Emitted  int `json:"emitted"`
	// Exact says that the answer is plain decoding's with the same seed.
	Exact bool `json:"exact"`
	Lossy bool `json:"lossy"`
	// Simulated says that acceptance was drawn by lot: the text means nothing.
	// RealAccepted is what the rule itself accepted.
	Simulated    bool   `json:"simulated"`
	Simulation   string `json:"simulation,omitempty"`
	RealAccepted *int   `json:"real_accepted,omitempty"`
}

// timings of the answer that ended last, in milliseconds.
type timings struct {
	Queue  float64 `json:"queue_ms"`  // arrival to its first step
	TTFT   float64 `json:"ttft_ms"`   // arrival to its first token
	Decode float64 `json:"decode_ms"` // first to last token
	Total  float64 `json:"total_ms"`
}

// usage sums up the answers, of which the counts so far are given.
func (g *generation) usage(all []counts) *usage {
	u := &usage{}
	for _, p := range g.prompts {
		u.Prompt += len(p)
	}
	sum := counts{}
	for _, c := range all {
		sum = sum.plus(c)
	}
	u.Completion = sum.Emitted
	u.Total = u.Prompt + u.Completion
	u.Details = &promptDetails{Cached: sum.Cached}
	d := g.drafted
	u.Draft = &speculationUsage{
		Strategy: d.Strategy, K: d.K, Rule: d.rule.Name(), Steps: sum.Steps, Drafted: sum.Drafted, Accepted: sum.Accepted, Emitted: sum.Emitted,
		Exact: d.rule.Exact(g.jobs[0].req.Params), Lossy: sum.Lossy, Simulated: sum.Simulated, Simulation: sum.Simulation,
	}
	if sum.Simulated {
		u.Draft.Exact, u.Draft.RealAccepted = false, &sum.Real
	}
	if last := all[len(all)-1]; !last.Ended.IsZero() && !last.First.IsZero() {
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		u.Timings = &timings{
			Queue: ms(last.Scheduled.Sub(g.arrived)), TTFT: ms(last.First.Sub(g.arrived)), Decode: ms(last.Last.Sub(last.First)), Total: ms(last.Ended.Sub(g.arrived)),
		}
	}
	return u
}
