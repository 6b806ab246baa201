package sample

// CoupledSample draws the token at a position from the distribution of a row
// (see Process) by the Gumbel-max trick: the argmax over tokens of log p + G,
// where G is Gumbel noise keyed by (seed, choice, position, token). The draw has
// exactly the distribution p, and depends on logits and position alone, so plain
// and speculative decoding give the same token. position is that of the token
// which is drawn. At temperature 0 it is Argmax. The error is a [RowError].
func (s *Sampler) CoupledSample(logits []float32, drafts []int32, position int) (int32, error) {
	_, top, err := s.weights(logits, drafts)
	if err != nil || s.params.Greedy() {
		return top, err
	}
	return race(s.ws.weight, top, s.Stream(Target, position, 0)), nil
}

// Coupled is CoupledSample for a distribution that was processed already (it
// need not be normalised). A drafter that guesses the target's draw calls it
// with its own distribution and the target's position: with equal distributions
// the tokens are equal. The result is -1 if no probability is positive.
func (p Params) Coupled(probs []float32, position int) int32 {
	top := int32(-1)
	var best float32
	for i, v := range probs {
		if v > best {
			best, top = v, int32(i)
		}
	}
	if top < 0 {
		return top
	}
	return race(probs, top, p.Stream(Target, position, 0))
}

// race returns the token of the smallest E/w, where E = -log(u) is exponential:
// the same token as the argmax of log w - log E, with one logarithm in place of
// three. Since E >= 1-u, a token with (1-u)/w above the best so far is passed
// over without a logarithm; the margin keeps that exact in spite of rounding.
// Equal values go to the lower id. top, a token of positive weight, goes first
// so that the bound is tight from the start.
func race[T float32 | float64](w []T, top int32, s Stream) int32 {
	const margin = 1 - 0x1p-40
	winner := top
	best := -log(s.Uniform(uint32(top))) / float64(w[top])
	try := func(i int, x uint64) {
		v := float64(w[i])
		u := uniform(x)
		if float64((1-u)*margin) > float64(best*v) {
			return
		}
		if e := -log(u) / v; e < best || e == best && int32(i) < winner {
			best, winner = e, int32(i)
		}
	}
	for i := 0; i < len(w); i += 2 {
		odd := i+1 < len(w) && w[i+1] > 0
		if !(w[i] > 0) && !odd {
			continue
		}
		x, y := s.pair(uint32(i / 2))
		if w[i] > 0 {
			try(i, x)
		}
		if odd {
			try(i+1, y)
		}
	}
	return winner
}
