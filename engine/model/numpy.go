package model

import "math/bits"

// numpyRandom is the generator that NumPy's default_rng(seed) makes: PCG64 (O'Neill
// 2014, XSL-RR 128/64), begun by a SeedSequence of the seed.
type numpyRandom struct{ hi, lo, incHi, incLo uint64 }

// newNumpyRandom seeds the generator with a number of 64 bits.
func newNumpyRandom(seed uint64) *numpyRandom {
	w := seedWords(seed)
	r := &numpyRandom{incHi: w[2]<<1 | w[3]>>63, incLo: w[3]<<1 | 1}
	r.step()
	var carry uint64
	r.lo, carry = bits.Add64(r.lo, w[1], 0)
	r.hi, _ = bits.Add64(r.hi, w[0], carry)
	r.step()
	return r
}

// seedWords is SeedSequence(seed).generate_state(4, uint64).
func seedWords(seed uint64) (words [4]uint64) {
	hash := func(x uint32, c *uint32, factor uint32) uint32 {
		x ^= *c
		*c *= factor
		x *= *c
		return x ^ x>>16
	}
	pool, c := [4]uint32{uint32(seed), uint32(seed >> 32)}, uint32(0x43b0d7e5)
	for i := range pool {
		pool[i] = hash(pool[i], &c, 0x931e8875)
	}
	for from := range pool {
		for to := range pool {
			if from != to {
				x := 0xca01f9dd*pool[to] - 0x4973f715*hash(pool[from], &c, 0x931e8875)
				pool[to] = x ^ x>>16
			}
		}
	}
	c = 0x8b51f9dd
	for i := range 8 {
		words[i/2] |= uint64(hash(pool[i%4], &c, 0x58f38ded)) << (32 * (i % 2))
	}
	return words
}

func (r *numpyRandom) step() {
	const hi, lo = 0x2360ed051fc65da4, 0x4385df649fccf645
	top, low := bits.Mul64(r.lo, lo)
	top += r.hi*lo + r.lo*hi
	var carry uint64
	r.lo, carry = bits.Add64(low, r.incLo, 0)
	r.hi, _ = bits.Add64(top, r.incHi, carry)
}

func (r *numpyRandom) next() uint64 {
	r.step()
	return bits.RotateLeft64(r.hi^r.lo, -int(r.hi>>58))
}

// below returns what integers(0, n) draws next; n is above 2^32.
func (r *numpyRandom) below(n uint64) uint64 {
	v, rest := bits.Mul64(r.next(), n)
	if rest < n {
		for least := -n % n; rest < least; {
			v, rest = bits.Mul64(r.next(), n)
		}
	}
	return v
}
