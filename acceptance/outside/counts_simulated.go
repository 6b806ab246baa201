package outside

import "math"

// leastSteps is the number of steps below which a histogram's form says nothing.
const leastSteps = 200

// schedule looks for the least-variance schedule that simulations follow: drafts
// up to a position always accepted, one position in part, none behind it. A real
// drafter's acceptance falls by and by.
func (c *countsAudit) schedule() {
	const name = "accept lengths vary"
	t := c.t
	joint := t.joint()
	if t.steps == nil || len(joint) == 0 {
		return
	}
	if *t.steps < leastSteps {
		c.skip(name, "%s: %.0f steps say nothing of the form, %d do", c.where(), *t.steps, leastSteps)
		return
	}
	if t.proposed == nil || float64(t.k)**t.steps-*t.proposed > t.slack() {
		c.skip(name, "%s: not all steps offered k drafts", c.where())
		return
	}
	m, above, short, stuck := t.twoBins()
	// Position m+1 must be clearly in part, and there must be one that it
	// differs from: one always accepted, or one never.
	part := upperRate(above+short, int64(*t.steps), testAlpha)
	switch {
	case m >= t.k || !stuck:
		stuck = false
	case m == 0:
		stuck = t.k > 1 && above > leastSteps/2
	case m+1 == t.k && short > 0:
		stuck = false // nothing is never accepted, and short steps hide what always is
	default:
		stuck = part < lowerRate(int64(*t.steps), int64(*t.steps), testAlpha)
	}
	c.check(name, !stuck, "", "%s: of %.0f steps all accept %d drafts or %d, never another number of k = %d: the schedule of a simulated acceptance, or a drafter of which later drafts are never right",
		c.where(), *t.steps, m, m+1, t.k)
}

// textIndependence notes whether accept lengths differ between texts by more
// than chance, as real ones do. It is no reason to fail.
func (c *countsAudit) textIndependence() {
	type req struct{ tokens, steps float64 }
	var reqs []req
	var n, total, squares float64
	for _, l := range c.ev.Levels {
		if l.Mode != AsServed || !c.ev.Server.Dialect.wire().perStep {
			continue
		}
		for _, a := range l.Answers {
			r := req{}
			for i, p := range a.Pieces {
				if i == 0 || p.Tokens < 1 {
					continue
				}
				v := float64(p.Tokens)
				r.tokens, r.steps = r.tokens+v, r.steps+1
				total, squares, n = total+v, squares+v*v, n+1
			}
			if r.steps > 0 {
				reqs = append(reqs, r)
			}
		}
		break // the same prompts at another level are the same texts
	}
	if len(reqs) < 8 || total == n {
		return
	}
	mean := total / n
	variance := squares/n - mean*mean
	if variance <= 0 {
		return
	}
	chi := 0.0
	for _, r := range reqs {
		d := r.tokens - r.steps*mean
		chi += d * d / (r.steps * variance)
	}
	// Wilson and Hilferty's normal form of the chi-square distribution.
	df := float64(len(reqs) - 1)
	z := (math.Cbrt(chi/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
	p := math.Erfc(z/math.Sqrt2) / 2
	if p > 0.01 {
		c.note("the accept lengths of %d texts differ no more than by chance (p = %.2g): a simulation's do not either", len(reqs), p)
		return
	}
	c.note("the accept lengths of %d texts differ by more than chance (p = %.2g), as those of a real drafter do", len(reqs), p)
}

// blinds says what the counts can't show.
func (c *countsAudit) blinds() {
	c.blind("counters that are made up to agree with the tokens, the steps and the stream can't be told from true ones")
	c.blind("up to k accepted drafts a request may lie behind its end, where no client sees them: counters inflated by less than that pass")
	if c.ev.Server.Dialect == SGLang {
		c.blind("SGLang's gauges sglang:spec_accept_length and sglang:spec_accept_rate cover a window that is cleared while the audit runs: not used")
	}
	if c.opt.Declared == 0 {
		c.blind("whether an accept length is the one that a simulation was set to: give it with --declared")
	}
	if !c.opt.Lookup {
		c.blind("whether the drafts that are counted were offered: a cap counted instead is seen only of a drafter that looks its drafts up (--drafter lookup), on a server whose pieces are steps")
	}
}
