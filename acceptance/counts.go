package acceptance

import "exacta.dev/exacta/engine"

// Counts are the sums over verifications of which every figure of acceptance is
// made. All are integers, so their order does not matter. The zero value is
// ready.
type Counts struct {
	Verifications int64
	Drafted       int64 // verifications of at least one draft
	// SimulatedDrafted counts those of them whose acceptance was simulated.
	SimulatedDrafted int64
	Proposed         Sum[engine.Proposed]
	Accepted         Sum[engine.Accepted]
	RealAccepted     Sum[engine.Accepted]     // by the real rule; differs when simulated
	Verified         Sum[engine.Emitted]      // at most AcceptLengths, less what stop and length cut
	AcceptLengths    Sum[engine.AcceptLength] // the decided tokens
	// Squares sums the squares of the accept lengths.
	Squares int64

	// Histogram[i] counts verifications that accepted i drafts.
	Histogram []int64
	// Reached[i] counts verifications that executed more than i drafts;
	// Tried[i] those of them that accepted drafts 0..i-1; Prefix[i] those
	// that accepted drafts 0..i.
	Reached, Tried, Prefix []int64
}

// Verification takes a record of phase decode.
func (c *Counts) Verification(r *engine.Record) {
	c.Verifications++
	c.Proposed.Add(engine.Proposed(r.KExecuted))
	c.Accepted.Add(r.Accepted)
	c.RealAccepted.Add(r.RealAccepted)
	c.AcceptLengths.Add(r.Accepted.Length())
	c.Squares += int64(r.Accepted.Length()) * int64(r.Accepted.Length())
	c.Verified.Add(r.Emitted())
	c.Histogram = count(c.Histogram, int(r.Accepted))
	if r.KExecuted > 0 {
		c.Drafted++
		if r.Simulated {
			c.SimulatedDrafted++
		}
	}
	for i := range int(r.KExecuted) {
		c.Reached = count(c.Reached, i)
		if int(r.Accepted) >= i {
			c.Tried = count(c.Tried, i)
		}
		if int(r.Accepted) > i {
			c.Prefix = count(c.Prefix, i)
		}
	}
}

// Mixed says that drafts were accepted by simulation in some verifications and
// by the rule in others. No figure of the two together means anything.
func (c *Counts) Mixed() bool {
	return c.SimulatedDrafted > 0 && c.SimulatedDrafted < c.Drafted
}

// Position is the acceptance of one position of the draft.
type Position struct {
	Position int `json:"position"` // in the draft, from 0
	// Unconditional: of the verifications that executed more than Position
	// drafts, the share in which drafts 0..Position were all accepted.
	Unconditional Share `json:"unconditional"`
	// Conditional: of those in which drafts 0..Position-1 were accepted, the
	// share in which this one was too.
	Conditional Share `json:"conditional"`
}

// Positions returns the acceptance by position, with Wilson intervals of that
// confidence (0 < confidence < 1). passes says how often the same prompts were
// run, at least 1: a pass that repeats another's decisions is no new evidence, so
// the intervals are those of the counts / passes.
func (c *Counts) Positions(confidence float64, passes int) []Position {
	z := Quantile(confidence)
	out := []Position{}
	for i, n := range c.Reached {
		all := at(c.Prefix, i)
		out = append(out, Position{i, NewShare(all, n, passes, z), NewShare(all, at(c.Tried, i), passes, z)})
	}
	return out
}

func count(h []int64, i int) []int64 {
	for len(h) <= i {
		h = append(h, 0)
	}
	h[i]++
	return h
}

func at(h []int64, i int) int64 {
	if i < len(h) {
		return h[i]
	}
	return 0
}
