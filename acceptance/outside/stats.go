package outside

import (
	"math"
	"slices"

	"exacta.dev/exacta/acceptance/audit"
)

// runAlpha is the chance of a false alarm that all statistical tests of one
// audit have together, at most; testAlpha is each one's share.
const (
	runAlpha  = 1e-6
	maxTests  = 20
	testAlpha = runAlpha / maxTests
)

// binomialTail returns P(X >= k) of a binomial distribution.
func binomialTail(k, n int64, p float64) float64 {
	switch {
	case k <= 0:
		return 1
	case k > n, p <= 0:
		return 0
	case p >= 1:
		return 1
	}
	return betaRegular(float64(k), float64(n-k+1), p)
}

// binomialTwoSided returns twice the smaller tail, at most 1.
func binomialTwoSided(k, n int64, p float64) float64 {
	return min(1, 2*min(binomialTail(k, n, p), 1-binomialTail(k+1, n, p)))
}

// binomialCritical returns the smallest k with P(X >= k) <= alpha.
func binomialCritical(n int64, p, alpha float64) int64 {
	lo, hi := int64(0), n+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		if binomialTail(mid, n, p) <= alpha {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// upperRate and lowerRate are exact one-sided bounds of a rate of which k of n
// were seen.
func upperRate(k, n int64, alpha float64) float64 {
	_, high := audit.ClopperPearson(min(k, n), n, 2*alpha)
	return high
}

func lowerRate(k, n int64, alpha float64) float64 {
	low, _ := audit.ClopperPearson(k, n, 2*alpha)
	return low
}

// betaRegular is the regularised incomplete beta function I_x(a, b), by the
// continued fraction of Numerical Recipes, section 6.4.
func betaRegular(a, b, x float64) float64 {
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	if x < (a+1)/(a+b+2) {
		return min(1, front*betaFraction(a, b, x)/a)
	}
	return max(0, 1-front*betaFraction(b, a, 1-x)/b)
}

func betaFraction(a, b, x float64) float64 {
	const tiny = 1e-300
	guard := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/guard(1-(a+b)*x/(a+1))
	h := d
	for m := 1.0; m < 10000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / guard(1+even*d)
		c = guard(1 + even/c)
		h *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / guard(1+odd*d)
		c = guard(1 + odd/c)
		h *= d * c
		if math.Abs(d*c-1) < 1e-14 {
			break
		}
	}
	return h
}

// meanBound returns a bound on the chance that n independent values in [0, k]
// with mean mu average as far from it as mean does (Hoeffding's bound in its
// relative-entropy form).
func meanBound(n int64, k, mu, mean float64) float64 {
	return min(1, 2*math.Exp(-float64(n)*relativeEntropy(mean/k, mu/k)))
}

func relativeEntropy(p, q float64) float64 {
	term := func(p, q float64) float64 {
		if p <= 0 {
			return 0
		}
		if q <= 0 {
			return math.Inf(1)
		}
		return p * math.Log(p/q)
	}
	return term(p, q) + term(1-p, 1-q)
}

// rankTest compares two samples by the Mann-Whitney test with the normal
// approximation and the correction for ties, two-sided. u is the share of pairs
// in which b is larger, ties counting half.
func rankTest(a, b []float64) (u, p float64) {
	type item struct {
		v float64
		b bool
	}
	all := make([]item, 0, len(a)+len(b))
	for _, v := range a {
		all = append(all, item{v, false})
	}
	for _, v := range b {
		all = append(all, item{v, true})
	}
	slices.SortFunc(all, func(x, y item) int {
		switch {
		case x.v < y.v:
			return -1
		case x.v > y.v:
			return 1
		}
		return 0
	})
	n, ranks, ties := float64(len(all)), 0.0, 0.0
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		same := float64(j - i)
		ties += same*same*same - same
		for ; i < j; i++ {
			if all[i].b {
				ranks += float64(j) - (same-1)/2
			}
		}
	}
	na, nb := float64(len(a)), float64(len(b))
	u = (ranks - nb*(nb+1)/2) / (na * nb)
	variance := na * nb / 12 * (n + 1 - ties/(n*(n-1)))
	if variance <= 0 {
		return u, 1
	}
	return u, math.Erfc(math.Abs(u-0.5) * na * nb / math.Sqrt(variance) / math.Sqrt2)
}

// rankDetects is the smallest share |u - 1/2| that rankTest finds at alpha with
// even odds, for samples of these sizes without ties.
func rankDetects(na, nb int, alpha float64) float64 {
	z := math.Sqrt2 * math.Erfcinv(alpha)
	a, b := float64(na), float64(nb)
	return z * math.Sqrt((a+b+1)/(12*a*b))
}

// median returns the middle value; the slice is sorted in place.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}
