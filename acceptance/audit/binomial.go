package audit

import "math"

// lchoose is the natural logarithm of the binomial coefficient.
func lchoose(n, k int64) float64 {
	return lgamma(float64(n)+1) - lgamma(float64(k)+1) - lgamma(float64(n-k)+1)
}

func lgamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}

// tailAtLeast returns P(X >= x) for X binomial (n, p), summed term by term from
// x away from the mean, so that small tails keep their relative precision.
func tailAtLeast(n, x int64, p float64) float64 {
	switch {
	case x <= 0:
		return 1
	case x > n || p <= 0:
		return 0
	case p >= 1:
		return 1
	case float64(x) <= float64(n)*p:
		return 1 - tailAtLeast(n, n-x+1, 1-p)
	}
	term := math.Exp(lchoose(n, x) + float64(x)*math.Log(p) + float64(n-x)*math.Log1p(-p))
	sum := 0.0
	for k := x; k <= n; k++ {
		sum += term
		if term < sum*1e-17 {
			break
		}
		term *= float64(n-k) / float64(k+1) * p / (1 - p)
	}
	return min(1, sum)
}

// ClopperPearson returns the exact confidence bounds of a proportion of which x
// of n were seen, at level 1 - alpha, two-sided (Clopper and Pearson 1934). They
// are found by bisection to the last digits of float64. n = 0 gives 0 and 1.
func ClopperPearson(x, n int64, alpha float64) (low, high float64) {
	low, high = 0, 1
	if x > 0 {
		low = bisect(func(p float64) bool { return tailAtLeast(n, x, p) < alpha/2 })
	}
	if x < n {
		high = 1 - bisect(func(q float64) bool { return tailAtLeast(n, n-x, q) < alpha/2 })
	}
	return low, high
}

// bisect returns the largest p in 0..1 for which below holds.
func bisect(below func(p float64) bool) float64 {
	lo, hi := 0.0, 1.0
	for range 100 {
		if mid := (lo + hi) / 2; below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// signTest returns the two-sided p of up pluses among up + down fair coins.
func signTest(up, down int64) float64 {
	n := up + down
	return min(1, 2*tailAtLeast(n, max(up, down), 0.5))
}

// normalQuantile returns z with P(Z > z) = tail, for a tail below one half.
func normalQuantile(tail float64) float64 {
	return math.Sqrt2 * math.Erfinv(1-2*tail)
}
