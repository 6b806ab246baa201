package kernels

import "math"

// Multipliers and key increments of Philox4x32 (Salmon et al. 2011, table 2).
const (
	philoxM0 = 0xD2511F53
	philoxM1 = 0xCD9E8D57
	philoxW0 = 0x9E3779B9
	philoxW1 = 0xBB67AE85
)

// Philox is the bijection Philox4x32-10 of the Random123 library: 128 random
// bits for each counter, of one of 2^64 keys.
func Philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	c0, c1, c2, c3 := ctr[0], ctr[1], ctr[2], ctr[3]
	k0, k1 := key[0], key[1]
	for range 10 {
		p, q := philoxM0*uint64(c0), philoxM1*uint64(c2)
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0 += philoxW0
		k1 += philoxW1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Noise is a sequence of 2^32 random values that is addressed, not advanced: value i
// is a half of Philox of the key at the counter with i/2 in its first word.
type Noise struct {
	Key [2]uint32
	Ctr [4]uint32
}

// Uint64 returns value i.
func (s Noise) Uint64(i uint32) uint64 {
	even, odd := s.pair(i >> 1)
	if i&1 == 0 {
		return even
	}
	return odd
}

// pair returns values 2j and 2j+1.
func (s Noise) pair(j uint32) (even, odd uint64) {
	s.Ctr[0] = j
	r := Philox(s.Ctr, s.Key)
	return uint64(r[1])<<32 | uint64(r[0]), uint64(r[3])<<32 | uint64(r[2])
}

// Uniform returns value i as a number strictly between 0 and 1, of 52 random
// bits: neither end can come up, where a 24-bit uniform is 0 once in 16 million.
func (s Noise) Uniform(i uint32) float64 { return uniform(s.Uint64(i)) }

func uniform(x uint64) float64 { return (float64(x>>12) + 0.5) * 0x1p-52 }

// Race returns the token of the smallest E/w, where E = -log(u) is exponential:
// the same token as the argmax of log w - log E, with one logarithm in place of
// three. Since E >= 1-u, a token with (1-u)/w above the best so far is passed
// over without a logarithm; the margin keeps that exact in spite of rounding.
// Equal values go to the lower id. top, a token of positive weight, goes first
// so that the bound is tight from the start.
func Race[T float32 | float64](w []T, top int32, s Noise) int32 {
	const margin = 1 - 0x1p-40
	winner := top
	best := -Log(s.Uniform(uint32(top))) / float64(w[top])
	try := func(i int, x uint64) {
		v := float64(w[i])
		u := uniform(x)
		if float64((1-u)*margin) > float64(best*v) {
			return
		}
		if e := -Log(u) / v; e < best || e == best && int32(i) < winner {
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

// Columns of a row that says how the tokens of a span are drawn: see LoopQueue.Draw.
const (
	DrawTemperature = iota // float32 bits; 0 takes the argmax
	DrawMinP               // float32 bits: least weight, the largest being 1
	DrawSeedLo             // low half of the seed
	DrawSeedHi             // high half
	DrawChoice             // index among several answers
	drawSpare
	DrawCols // columns of such a row
)

// DrawRow draws the token at a position from a row of logits, as how says (a row of
// DrawCols): the Race of the weights exp((x - largest) / temperature), without those
// below min-p, with the noise of seed, choice and position. top is the argmax; at
// temperature 0 it is the result. Weights lie in scratch, of the length of logits.
func DrawRow(scratch []float64, logits []float32, top int32, position int, how []int32) int32 {
	temperature := float64(math.Float32frombits(uint32(how[DrawTemperature])))
	if temperature == 0 || top < 0 {
		return top
	}
	least, largest := float64(math.Float32frombits(uint32(how[DrawMinP]))), float64(logits[top])
	for i, x := range logits {
		w := Exp((float64(x) - largest) / temperature)
		if w < least {
			w = 0
		}
		scratch[i] = w
	}
	return Race(scratch[:len(logits)], top, Noise{
		Key: [2]uint32{uint32(how[DrawSeedLo]), uint32(how[DrawSeedHi])},
		Ctr: [4]uint32{0, uint32(position), uint32(how[DrawChoice]), 0},
	})
}

// Exp and Log are written out, with each product rounded by a conversion, so
// that they have the same bits on every processor and under every setting of
// the compiler. The algorithms are those of FreeBSD's msun (e_exp.c, e_log.c; Sun
// Microsystems 1993), with errors below one unit in the last place.

const (
	ln2Hi = 6.93147180369123816490e-01
	ln2Lo = 1.90821492927058770002e-10
	log2e = 1.44269504088896338700e+00
)

// Exp returns e**x for x <= 0.
func Exp(x float64) float64 {
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

// Log returns the natural logarithm of a normal number x > 0.
func Log(x float64) float64 {
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
