package verify

import (
	"fmt"
	"math"
)

// accepts decides about one draft: u < p(x)/q(x), with p and q divided by their
// sums. A nil q is one-hot at the draft. u is strictly between 0 and 1.
func accepts(p []float64, q []float32, draft int32, u float64) (bool, error) {
	ps := mass(p)
	qs, err := draftMass(len(p), q, draft)
	if err != nil {
		return false, err
	}
	if q == nil {
		return float64(u*ps) < p[draft], nil
	}
	return float64(u*float64(float64(q[draft])*ps)) < float64(p[draft]*qs), nil
}

// likelihood is p(x)/q(x) of a draft x, with p and q divided by their sums. A nil
// q is one-hot at the draft.
func likelihood(p, q []float32, draft int32) (float64, error) {
	ps := mass(p)
	qs, err := draftMass(len(p), q, draft)
	if err != nil {
		return 0, err
	}
	if q == nil {
		return float64(p[draft]) / ps, nil
	}
	return float64(float64(p[draft])*qs) / float64(float64(q[draft])*ps), nil
}

// draftMass checks a draft and the distribution that it was drawn from, over a
// vocabulary, and returns the distribution's sum, 1 for a nil one.
func draftMass(vocab int, q []float32, draft int32) (float64, error) {
	if draft < 0 || int(draft) >= vocab {
		return 0, fmt.Errorf("token %d is outside the vocabulary of %d", draft, vocab)
	}
	if q == nil {
		return 1, nil
	}
	if len(q) != vocab {
		return 0, fmt.Errorf("its distribution has %d entries; the vocabulary has %d", len(q), vocab)
	}
	qs := mass(q)
	for i, v := range q {
		if !(v >= 0) {
			return 0, fmt.Errorf("its distribution has %v at token %d", v, i)
		}
	}
	if math.IsInf(qs, 1) || q[draft] == 0 {
		return 0, fmt.Errorf("its distribution gives %v to token %d, which was drawn from it, of %v in all", q[draft], draft, qs)
	}
	return qs, nil
}

// residual turns the target's distribution w into max(w - q, 0) of the
// distributions divided by their sums, times the product of the sums. A nil q is
// one-hot at the draft.
func residual(w []float64, q []float32, draft int32) {
	if q == nil {
		w[draft] = 0
		return
	}
	ps, qs := mass(w), mass(q)
	for i, p := range w {
		w[i] = max(0, float64(p*qs)-float64(float64(q[i])*ps))
	}
}

// mass is the sum by rising id, as sample.Sample takes it.
func mass[T float32 | float64](p []T) float64 {
	var s float64
	for _, v := range p {
		s += float64(v)
	}
	return s
}
