package sample

import "exacta.dev/exacta/kernels"

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
	return kernels.Race(s.ws.weight, top, s.Stream(Target, position, 0)), nil
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
	return kernels.Race(probs, top, p.Stream(Target, position, 0))
}
