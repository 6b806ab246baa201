package vec

import "math"

// BF16 rounds x to BF16, to nearest with ties to even. Subnormals become zeros
// of their sign and a NaN keeps its sign and its upper payload, made quiet: what
// VCVTNEPS2BF16 does.
func BF16(x float32) uint16 {
	b := math.Float32bits(x)
	switch {
	case b&0x7f800000 == 0:
		return uint16(b>>16) & 0x8000
	case x != x:
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// F32 widens a BF16 number, subnormals included.
func F32(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }
