package sample

import "exacta.dev/exacta/kernels"

// Process returns the distribution of the next token at a row of FP32 logits
// [vocab] whose history is the pushed tokens and then drafts: penalties,
// temperature, top-k, top-p, min-p. At temperature 0 it is one-hot at the argmax.
// The result sums to 1 within FP32 rounding; it is in the workspace and valid
// until the next call. The error is a [RowError].
func (s *Sampler) Process(logits []float32, drafts []int32) (probs []float32, err error) {
	return s.ProcessTo(s.ws.row(len(logits)), logits, drafts)
}

// ProcessTo is Process into dst, of the length of logits, which it returns. A
// drafter that samples keeps its distributions this way until they are verified.
func (s *Sampler) ProcessTo(dst, logits []float32, drafts []int32) ([]float32, error) {
	total, _, err := s.weights(logits, drafts)
	if err != nil {
		return nil, err
	}
	for i, w := range s.ws.weight {
		dst[i] = float32(w / total)
	}
	return dst, nil
}

// weights leaves in the workspace the unnormalised distribution of the row (the
// largest weight is 1, dropped tokens have 0) and returns its sum and the token
// of the largest weight.
func (s *Sampler) weights(logits []float32, drafts []int32) (total float64, top int32, err error) {
	z, top, err := s.load(logits, drafts)
	if err != nil {
		return 0, -1, err
	}
	p := s.params
	if p.Greedy() {
		clear(z)
		z[top] = 1
		return 1, top, nil
	}
	largest, temperature := z[top], float64(p.Temperature)
	for i, v := range z {
		w := kernels.Exp((v - largest) / temperature)
		z[i] = w
		total += w
	}
	k := p.TopK
	if k <= 0 || k >= len(z) {
		k = len(z)
	}
	mass := float64(p.TopP)
	if mass <= 0 || mass >= 1 {
		mass = 1
	}
	if k < len(z) || mass < 1 {
		total = s.ws.topKP(total, k, mass)
	}
	if p.MinP > 0 {
		total = minP(z, float64(p.MinP))
	}
	return total, top, nil
}

// minP drops weights below floor, which is a share of the largest weight, 1, and
// returns the sum of what is left.
func minP(w []float64, floor float64) (total float64) {
	for i, v := range w {
		if v < floor {
			w[i] = 0
		} else {
			total += v
		}
	}
	return total
}

// Sample draws from a distribution: the first token at which the running sum,
// by rising id, exceeds u times the whole sum. The sums are float64, so probs
// need not be normalised. u is strictly between 0 and 1 ([Stream.Uniform]); the
// result is -1 if no probability is positive.
func Sample(probs []float32, u float64) int32 {
	return draw(probs, u)
}

// Draw draws from a distribution, which need not be normalised, with the request's
// noise of a purpose at a length and an offset: how drafters that sample draw draft
// number offset of the step that starts at a committed length (purpose Draft). The
// result is -1 if no probability is positive.
func (p Params) Draw(purpose Purpose, probs []float32, length, offset int) int32 {
	return draw(probs, p.Stream(purpose, length, offset).Uniform(0))
}

// SampleWeights is Sample for float64 weights.
func SampleWeights(weights []float64, u float64) int32 {
	return draw(weights, u)
}

func draw[T float32 | float64](w []T, u float64) int32 {
	var total float64
	for _, v := range w {
		total += float64(v)
	}
	target := float64(u * total)
	last := int32(-1)
	var sum float64
	for i, v := range w {
		if v <= 0 {
			continue
		}
		last = int32(i)
		if sum += float64(v); sum > target {
			return last
		}
	}
	return last
}
