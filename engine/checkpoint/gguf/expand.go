package gguf

import (
	"encoding/binary"
	"math"
)

// The blocks of 32 elements have one scale d, and those of kind _1 a minimum m,
// both F16. Four bits of an element lie in byte i of the quants, in the lower half
// for element i and in the upper for element i+16; a fifth is bit i of a word
// before them. Products and sums are rounded each on its own.

func expandF32(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
}

func expandF16(dst []float32, src []byte) { dst[0] = half(src) }

func expandBF16(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
}

func expandQ4_0(dst []float32, src []byte) {
	d, qs := half(src), src[2:18]
	for i, q := range qs {
		dst[i] = d * float32(int(q&15)-8)
		dst[i+16] = d * float32(int(q>>4)-8)
	}
}

func expandQ4_1(dst []float32, src []byte) {
	d, m, qs := half(src), half(src[2:]), src[4:20]
	for i, q := range qs {
		dst[i] = float32(d*float32(q&15)) + m
		dst[i+16] = float32(d*float32(q>>4)) + m
	}
}

func expandQ5_0(dst []float32, src []byte) {
	d, high, qs := half(src), binary.LittleEndian.Uint32(src[2:]), src[6:22]
	for i, q := range qs {
		dst[i] = d * float32(int(q&15)|int(high>>i&1)<<4-16)
		dst[i+16] = d * float32(int(q>>4)|int(high>>(i+16)&1)<<4-16)
	}
}

func expandQ5_1(dst []float32, src []byte) {
	d, m, high, qs := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:]), src[8:24]
	for i, q := range qs {
		dst[i] = float32(d*float32(int(q&15)|int(high>>i&1)<<4)) + m
		dst[i+16] = float32(d*float32(int(q>>4)|int(high>>(i+16)&1)<<4)) + m
	}
}

func expandQ8_0(dst []float32, src []byte) {
	d := half(src)
	for i, q := range src[2:34] {
		dst[i] = d * float32(int8(q))
	}
}

// scaleMin gives the six-bit scale and minimum of group j of 8, which Q4_K and
// Q5_K pack into 12 bytes.
func scaleMin(p []byte, j int) (scale, least byte) {
	if j < 4 {
		return p[j] & 63, p[j+4] & 63
	}
	return p[j+4]&15 | p[j-4]>>6<<4, p[j+4]>>4 | p[j]>>6<<4
}

// expandQ4_K: d and dmin, 8 scales and minima, and quants by pairs of groups of 32,
// the first of a pair in the lower halves.
func expandQ4_K(dst []float32, src []byte) {
	d, dmin, packed, qs := half(src), half(src[2:]), src[4:16], src[16:144]
	for j := range 8 {
		s, least := scaleMin(packed, j)
		scale, m := d*float32(s), dmin*float32(least)
		shift := j % 2 * 4
		for i, q := range qs[j/2*32:][:32] {
			dst[j*32+i] = float32(scale*float32(q>>shift&15)) - m
		}
	}
}

// expandQ5_K is Q4_K with the fifth bit of group j at bit j of 32 bytes.
func expandQ5_K(dst []float32, src []byte) {
	d, dmin, packed, high, qs := half(src), half(src[2:]), src[4:16], src[16:48], src[48:176]
	for j := range 8 {
		s, least := scaleMin(packed, j)
		scale, m := d*float32(s), dmin*float32(least)
		shift := j % 2 * 4
		for i, q := range qs[j/2*32:][:32] {
			dst[j*32+i] = float32(scale*float32(q>>shift&15|high[i]>>j&1<<4)) - m
		}
	}
}

// expandQ6_K: in each half of 128, four bits of elements 0..63 in the lower halves
// of 64 bytes and of 64..127 in the upper; two more bits of elements 32k+i at bits
// 2k of byte i of 32; a signed scale for each 16.
func expandQ6_K(dst []float32, src []byte) {
	low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for i := range dst {
		part, at := i/128, i%128
		q := low[part*64+at%64] >> (at / 64 * 4) & 15
		q |= high[part*32+at%32] >> (at / 32 * 2) & 3 << 4
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(q)-32)
	}
}

// half widens the F16 number at the start of p; exact for every value.
func half(p []byte) float32 {
	b := binary.LittleEndian.Uint16(p)
	sign := uint32(b&0x8000) << 16
	exp, frac := uint32(b>>10)&31, uint32(b)&1023
	switch exp {
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case 0:
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
