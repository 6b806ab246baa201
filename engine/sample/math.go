package sample

import "math"

// exp and log are written out, with each product rounded by a conversion, so
// that they have the same bits on every processor and under every setting of
// the compiler. The algorithms are those of FreeBSD's msun (e_exp.c, e_log.c; Sun
// Microsystems 1993), with errors below one unit in the last place.

const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
	log2e = 1.44269504088896338700e+00
)

// exp returns e**x for x <= 0.
func exp(x float64) float64 {
	const (
		p1 = 1.66666666666666657415e-01
		p2 = -2.77777777770155933842e-03
		p3 = 6.61375632143793436117e-05
		p4 = -1.65339022054652515390e-06
		p5 = 4.13813679705723846039e-08
	)
	switch {
	case x < -745.2: // below half the smallest subnormal, and minus infinity
		return 0
	case x > -0x1p-28:
		return 1 + x
	}
	k := int64(float64(log2e*x) - 0.5)
	hi := x - float64(float64(k)*ln2Hi)
	lo := float64(float64(k) * ln2Lo)
	r := hi - lo
	t := float64(r * r)
	c := float64(t * p5)
	c = float64(t * (p4 + c))
	c = float64(t * (p3 + c))
	c = float64(t * (p2 + c))
	c = r - float64(t*(p1+c))
	y := 1 - ((lo - float64(r*c)/(2-c)) - hi)
	if k > -1022 {
		return float64(y * math.Float64frombits(uint64(k+1023)<<52))
	}
	return float64(y*math.Float64frombits(uint64(k+1023+64)<<52)) * 0x1p-64
}

// log returns the natural logarithm of a normal number x > 0.
func log(x float64) float64 {
	const (
		l1 = 6.666666666666735130e-01
		l2 = 3.999999999940941908e-01
		l3 = 2.857142874366239149e-01
		l4 = 2.222219843214978396e-01
		l5 = 1.818357216161805012e-01
		l6 = 1.531383769920937332e-01
		l7 = 1.479819860511658591e-01
	)
	b := math.Float64bits(x)
	e := int64(b>>52) - 1022
	f := math.Float64frombits(b&(1<<52-1) | 1022<<52) // in [1/2, 1)
	if f < math.Sqrt2/2 {
		f *= 2
		e--
	}
	f--
	k := float64(e)
	s := f / (2 + f)
	s2 := float64(s * s)
	s4 := float64(s2 * s2)
	a := float64(s4 * l7)
	a = float64(s4 * (l5 + a))
	a = float64(s4 * (l3 + a))
	a = float64(s2 * (l1 + a))
	b2 := float64(s4 * l6)
	b2 = float64(s4 * (l4 + b2))
	b2 = float64(s4 * (l2 + b2))
	r := a + b2
	hfsq := float64(float64(0.5*f) * f)
	return float64(k*ln2Hi) - ((hfsq - (float64(s*(hfsq+r)) + float64(k*ln2Lo))) - f)
}
