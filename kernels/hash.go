package kernels

import "math"

// Row hashes. The hash of a logits row is defined here once, in plain Go, so
// that every backend, the records and the audits mean the same number:
//
//   - elements are the bits of float32, every NaN made 0x7fc00000;
//   - a segment is HashSegment consecutive columns (the last may be short);
//     four 64-bit lanes take its elements in turn, lane j the elements with
//     index j mod 4: h = (h ^ bits) * hashPrime, h ^= h >> 29;
//   - a segment's hash folds its lanes in order, starting from its length;
//   - the row's hash folds its segments in order, starting from hashSeed.
const (
	hashSeed  = 0x9e3779b97f4a7c15
	hashPrime = 0xff51afd7ed558ccd
)

const canonicalNaN = 0x7fc00000

func mix(h, v uint64) uint64 {
	h = (h ^ v) * hashPrime
	return h ^ h>>29
}

// HashSegmentOf returns the hash of one segment of at most HashSegment logits.
func HashSegmentOf(x []float32) uint64 {
	var l [4]uint64
	for j := range l {
		l[j] = hashSeed + uint64(j)
	}
	i := 0
	for ; i+4 <= len(x); i += 4 {
		l[0] = mix(l[0], bits(x[i]))
		l[1] = mix(l[1], bits(x[i+1]))
		l[2] = mix(l[2], bits(x[i+2]))
		l[3] = mix(l[3], bits(x[i+3]))
	}
	for ; i < len(x); i++ {
		l[i&3] = mix(l[i&3], bits(x[i]))
	}
	h := uint64(len(x))
	for _, v := range l {
		h = mix(h, v)
	}
	return h
}

// FoldHash appends a segment's hash to a row's running hash, which starts as
// HashStart.
func FoldHash(row, segment uint64) uint64 { return mix(row, segment) }

// HashStart is the running hash of a row before its first segment.
const HashStart uint64 = hashSeed

// HashRow returns the hash of a whole row of logits.
func HashRow(x []float32) uint64 {
	h := HashStart
	for len(x) > 0 {
		n := min(len(x), HashSegment)
		h = FoldHash(h, HashSegmentOf(x[:n]))
		x = x[n:]
	}
	return h
}

func bits(f float32) uint64 {
	if f != f {
		return canonicalNaN
	}
	return uint64(math.Float32bits(f))
}
