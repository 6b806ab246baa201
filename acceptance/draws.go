package acceptance

// Figures of a comparison.
const (
	figLength      = "accept_length"
	figMacro       = "accept_length_macro"
	figRate        = "draft_accept_rate"
	figJoint       = "acceptance_by_position"
	figConditional = "acceptance_conditional"
	figSpeed       = "decode_tok_s"
	figSpeedRatio  = "decode_tok_s_ratio"
)

// drawn are one side's sums over the prompts of a draw.
type drawn struct {
	verifications, lengths, proposed, accepted, tokens, ns int64
	means                                                  float64 // sum of the prompts' mean accept lengths
	prompts                                                int64   // that have one
	reached, tried, prefix                                 []int64
}

func (b *boot) sums() *drawn {
	n := b.positions
	return &drawn{reached: make([]int64, n), tried: make([]int64, n), prefix: make([]int64, n)}
}

// take sums over the prompts drawn.
func (d *drawn) take(prompts []*PromptSums, draws []int) {
	reached, tried, prefix := d.reached, d.tried, d.prefix
	clear(reached)
	clear(tried)
	clear(prefix)
	*d = drawn{reached: reached, tried: tried, prefix: prefix}
	for _, j := range draws {
		p := prompts[j]
		d.verifications += p.Verifications
		d.lengths += int64(p.AcceptLengths)
		d.proposed += int64(p.Proposed)
		d.accepted += int64(p.Accepted)
		d.tokens += int64(p.Tokens)
		d.ns += p.Ns
		if p.Verifications > 0 {
			d.means += p.AcceptLengths.Per(p.Verifications)
			d.prompts++
		}
		for i := range reached {
			reached[i] += at(p.Reached, i)
			tried[i] += at(p.Tried, i)
			prefix[i] += at(p.Prefix, i)
		}
	}
}

// figure returns a side's figure; ok is false where there is nothing to divide
// by.
func (d *drawn) figure(name string, position int) (v float64, ok bool) {
	per := func(a, b int64) (float64, bool) { return ratio(a, b), b != 0 }
	switch name {
	case figLength:
		return per(d.lengths, d.verifications)
	case figMacro:
		if d.prompts == 0 {
			return 0, false
		}
		return d.means / float64(d.prompts), true
	case figRate:
		return per(d.accepted, d.proposed)
	case figJoint:
		return per(d.prefix[position], d.reached[position])
	case figConditional:
		return per(d.prefix[position], d.tried[position])
	}
	v, ok = per(d.tokens, d.ns)
	return 1e9 * v, ok
}

// difference compares a figure of two sides.
func difference(name string, a, b *drawn, position int) (va, vb, v float64, ok bool) {
	va, okA := a.figure(name, position)
	vb, okB := b.figure(name, position)
	if name == figSpeedRatio {
		if vb == 0 {
			return va, vb, 0, false
		}
		return va, vb, va / vb, okA && okB
	}
	return va, vb, va - vb, okA && okB
}
