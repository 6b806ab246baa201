package vec

import "math"

// Constants of Exp32, shared with the generator of the vector forms by value.
const (
	expCut   = -87.33654 // exp is 0 below: results would be subnormal
	expMax   = 88.72283  // exp is +Inf above
	expLog2E = 1.4426950408889634
	expMagic = 12582912 // 1.5 * 2^23: adding it rounds to an integer
	expLn2Hi = 0.693359375
	expLn2Lo = -2.12194440054690583e-4
	expC0    = 0.4999999403953552
	expC1    = 0.1666652113199234
	expC2    = 0.04166838899254799
	expC3    = 0.008368724025785923
	expC4    = 0.0013814583653584123
)

// Exp32 returns e to the x. The relative error is below 1 ulp, results that
// would be subnormal are 0, results beyond the largest float32 are +Inf, and NaN
// stays NaN.
//
// x = n ln 2 + r with n the nearest integer, ln 2 split in two (Cody and Waite);
// exp(r) = 1 + r + r^2 P(r) with P of degree 4, a minimax fit of the relative
// error over |r| <= ln(2)/2; n goes into the exponent by integer addition.
func Exp32(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > expMax:
		return float32(math.Inf(1))
	case x < expCut:
		return 0
	}
	t := float32(x*expLog2E) + expMagic
	n := t - expMagic
	r := x - float32(n*expLn2Hi)
	r -= float32(n * expLn2Lo)
	p := float32(r*expC4) + expC3
	p = float32(p*r) + expC2
	p = float32(p*r) + expC1
	p = float32(p*r) + expC0
	y := float32(p*float32(r*r)) + r
	y++
	return math.Float32frombits(math.Float32bits(t)<<23 + math.Float32bits(y))
}

// Sigmoid32 returns 1 / (1 + exp(-x)).
func Sigmoid32(x float32) float32 { return 1 / (1 + Exp32(-x)) }

// SiLU32 returns x / (1 + exp(-x)).
func SiLU32(x float32) float32 { return x / (1 + Exp32(-x)) }

// Softplus32 returns log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)). The
// logarithm is 2 atanh(s) with s = u / (2 + u) <= 1/3, an odd polynomial whose
// coefficients are a minimax fit.
func Softplus32(x float32) float32 {
	if x != x {
		return x
	}
	u := Exp32(-abs32(x))
	s := u / (2 + u)
	t := float32(s * s)
	p := float32(t*0.14012570679187775) + 0.13999506831169128
	p = float32(p*t) + 0.20010852813720703
	p = float32(p*t) + 0.3333320617675781
	l := float32(float32(p*t)*s) + s
	l += l
	return max(x, 0) + l
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }
