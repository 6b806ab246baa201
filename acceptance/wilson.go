package acceptance

import "math"

// Share is a share of counted trials with its Wilson interval.
type Share struct {
	Count int64   `json:"count"`
	Of    int64   `json:"of"`
	Rate  float64 `json:"rate"` // count / of; 0 of nothing
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// NewShare returns the share count / of (0 <= count <= of) with the Wilson score
// interval at z, as Quantile gives it, where every trial was counted passes
// times:
//
//	p = count / of,  n = of / passes
//	(p + z²/2n ± z·√(p(1-p)/n + z²/4n²)) / (1 + z²/n)
//
// (E. B. Wilson, Probable inference, the law of succession, and statistical
// inference, JASA 22, 1927.) It stays within [0, 1] and is of use for small n
// and for shares near 0 and 1, where p ± z·√(p(1-p)/n) is not. Of nothing, the
// interval is all of [0, 1].
//
// The interval takes the trials as independent. Verifications of one output are
// not quite: where that matters, resample prompts (PairedBootstrap).
func NewShare(count, of int64, passes int, z float64) Share {
	s := Share{Count: count, Of: of, Rate: ratio(count, of), Low: 0, High: 1}
	if of <= 0 {
		return s
	}
	// The conversions keep compilers from fusing a product with a sum, so
	// that every machine and language has the same bits.
	n, p, z2 := ratio(of, int64(max(1, passes))), s.Rate, float64(z*z)
	centre := p + float64(z2/float64(2*n))
	half := z * math.Sqrt(float64(float64(p*(1-p))/n)+float64(z2/float64(float64(4*n)*n)))
	scale := 1 + float64(z2/n)
	if count > 0 {
		s.Low = max(0, (centre-float64(half))/scale)
	}
	if count < of {
		s.High = min(1, (centre+float64(half))/scale)
	}
	return s
}

// Quantile returns z of a two-sided interval of that confidence: a standard
// normal variable lies within ±z with that probability. It is rounded to 12
// decimals, so that other implementations of the quantile give the same number.
// A confidence outside (0, 1) gives NaN or an infinity.
func Quantile(confidence float64) float64 {
	return math.Round(math.Sqrt2*math.Erfinv(confidence)*1e12) / 1e12
}
