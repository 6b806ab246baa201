package outside

import (
	"fmt"
	"math"
)

// request holds what a server said of one request to the identities I1 to I5 and
// to what came.
func (c *countsAudit) request(a *Answer) {
	if a.Exact && a.Used >= 0 {
		// The token that ends a text is counted but not always sent.
		unsent := a.Finish == "stop" && a.Used == len(a.IDs)+1
		c.check("usage", a.Used == len(a.IDs) || unsent, a.ID, "the usage counts %d tokens, %d came", a.Used, len(a.IDs))
	}
	s := a.Stated
	if s == nil {
		return
	}
	if s.Steps != nil && *s.Steps > 0 || s.Proposed != nil && *s.Proposed > 0 {
		c.claimed = true
	}
	if s.Accepted != nil && s.Proposed != nil {
		c.check("accepted <= drafted", *s.Accepted <= *s.Proposed && *s.Accepted >= 0, a.ID, "%d drafts accepted of %d", *s.Accepted, *s.Proposed)
	}
	c.ratios(a, s)
	c.bins(a, s)
	c.perStep(a, s)
	c.balance(a, s)
	if s.Predicted != nil {
		c.check("usage", *s.Predicted == int64(a.Used), a.ID, "the timings count %d tokens, the answer %d", *s.Predicted, a.Used)
		if s.DecodeMs != nil && s.PerSecond != nil && *s.DecodeMs > 0 {
			// The first token comes from the prompt's pass, whose time is another:
			// newer llama.cpp leaves it out of the speed.
			all, rest := 1000*float64(*s.Predicted) / *s.DecodeMs, 1000*float64(*s.Predicted-1) / *s.DecodeMs
			c.check("speed stated", nearly(*s.PerSecond, all, 0.01) || nearly(*s.PerSecond, rest, 0.01), a.ID,
				"%.2f tokens/s are stated, %d tokens in %.2f ms are %.2f, without the first one %.2f", *s.PerSecond, *s.Predicted, *s.DecodeMs, all, rest)
		}
	}
}

// nearly reports whether two figures differ by a share of at most tol, or by
// 0.005, the error of two decimals.
func nearly(a, b, tol float64) bool {
	return math.Abs(a-b) <= max(0.005, tol*math.Abs(b))
}

// ratios checks I1 (accept length), I2 (drafts by steps) and I3 (accept rate).
func (c *countsAudit) ratios(a *Answer, s *Stated) {
	if s.Steps != nil && *s.Steps > 0 {
		v := float64(*s.Steps)
		if s.AcceptLength != nil {
			want, what := float64(a.tokens())/v, fmt.Sprintf("%d tokens in %d steps", a.tokens(), *s.Steps)
			if c.ev.Server.Dialect == VLLM && s.Accepted != nil {
				want, what = 1+float64(*s.Accepted)/v, fmt.Sprintf("%d accepted in %d steps and the bonus", *s.Accepted, *s.Steps)
			}
			c.check("I1 accept length", nearly(*s.AcceptLength, want, 0.001), a.ID, "an accept length of %.4f is stated, %s are %.4f", *s.AcceptLength, what, want)
		}
		if s.Proposed != nil && c.t.k > 0 {
			c.check("I2 drafts <= steps x k", *s.Proposed <= *s.Steps*int64(c.t.width), a.ID, "%d drafts in %d steps of at most %d (%s)", *s.Proposed, *s.Steps, c.t.width, c.t.kFrom)
		}
	}
	if s.AcceptRate == nil || s.Accepted == nil || s.Proposed == nil || *s.Proposed == 0 {
		return
	}
	rate, want, why := *s.AcceptRate, float64(*s.Accepted)/float64(*s.Proposed), ""
	if c.ev.Server.Dialect == VLLM && nearly(rate, 100*want, 0.001) {
		rate /= 100 // vLLM gives per cent
	}
	if s.Steps != nil && nearly(rate, float64(*s.Accepted+*s.Steps)/float64(*s.Proposed+*s.Steps), 0.001) {
		why = ": the bonus is in it, above and below the line"
	}
	c.check("I3 accept rate", nearly(rate, want, 0.001), a.ID, "an accept rate of %.4f is stated, %d of %d are %.4f%s", rate, *s.Accepted, *s.Proposed, want, why)
}

// bins checks I4 and I5, the histogram.
func (c *countsAudit) bins(a *Answer, s *Stated) {
	if len(s.Histogram) == 0 {
		return
	}
	var steps, accepted int64
	for i, n := range s.Histogram {
		steps += n
		accepted += int64(i) * n
	}
	if s.Steps != nil {
		c.check("I4 histogram counts steps", steps == *s.Steps, a.ID, "the histogram has %d steps, %d are stated", steps, *s.Steps)
	}
	if s.Accepted == nil {
		return
	}
	why := ""
	if d := accepted - *s.Accepted; d != 0 && (d == steps || d == -steps || d == steps-s.Histogram[0]) {
		why = ": it is off by one"
	}
	c.check("I5 histogram counts accepted drafts", accepted == *s.Accepted, a.ID, "the histogram has %d accepted drafts, %d are stated%s", accepted, *s.Accepted, why)
}

// perStep checks arrays with one entry per step.
func (c *countsAudit) perStep(a *Answer, s *Stated) {
	if s.Accepts == nil {
		return
	}
	var accepted, offered int64
	for i, n := range s.Accepts {
		accepted += n
		if i < len(s.Offers) {
			offered += s.Offers[i]
			c.check("accepted <= drafted", n <= s.Offers[i], a.ID, "step %d accepted %d drafts of %d", i, n, s.Offers[i])
		}
	}
	if s.Steps != nil {
		c.check("steps listed", int64(len(s.Accepts)) == *s.Steps, a.ID, "%d steps are listed, %d are stated", len(s.Accepts), *s.Steps)
	}
	if s.Accepted != nil {
		c.check("steps listed", accepted == *s.Accepted, a.ID, "the steps listed accepted %d drafts, %d are stated", accepted, *s.Accepted)
	}
	if s.Proposed != nil && len(s.Offers) == len(s.Accepts) {
		c.check("steps listed", offered == *s.Proposed, a.ID, "the steps listed offered %d drafts, %d are stated", offered, *s.Proposed)
	}
}

// balance binds a request's tokens to its steps and accepted drafts.
func (c *countsAudit) balance(a *Answer, s *Stated) {
	if s.Steps == nil || s.Accepted == nil || !s.AllSteps {
		return
	}
	const name = "tokens = requests + steps + accepted"
	reached := int64(a.tokens()-1) - *s.Steps
	why := ""
	if *s.Accepted >= reached+*s.Steps {
		why = ": it looks as if the bonus tokens were counted as accepted drafts"
	}
	c.check(name, *s.Accepted >= reached && *s.Accepted <= reached+int64(c.t.k), a.ID,
		"%d drafts are stated as accepted, but %d tokens in %d steps leave %d beside the first token and one a step, and the end can have cut off %d%s",
		*s.Accepted, a.tokens(), *s.Steps, reached, c.t.k, why)
}
