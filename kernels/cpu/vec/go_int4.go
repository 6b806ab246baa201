package vec

import (
	"math"
	"unsafe"
)

// Layout of the 4-bit weights of 32 outputs: data [K/8][2][16] 32-bit words, of which
// word o has the nibbles of 8 consecutive k of output o, the first in the lowest
// bits; meta [K/group][2] blocks of 16 BF16 scales and 16 zero points of a byte.
const (
	// Int4Outputs is the number of outputs that Int4 computes.
	Int4Outputs = 32
	// Int4Meta is the bytes of the scales and zero points of a group.
	Int4Meta  = 2 * int4Block
	int4Block = 48
)

// Int4Place returns where in meta the scale and the zero point of output o of group
// g lie.
func Int4Place(g, o int) (scale, zero int) {
	b := g*Int4Meta + o/16*int4Block
	return b + o%16*2, b + 32 + o%16
}

// goInt4 is Int4 of the Go set, 128 k at a time.
func goInt4(out *float32, outStride int, data, meta *byte, x *float32, xStride, m, k, group int) {
	words := unsafe.Slice((*uint32)(unsafe.Pointer(data)), k/8*Int4Outputs)
	about := unsafe.Slice(meta, k/group*Int4Meta)
	var block [128]float32
	for o := range Int4Outputs {
		for from := 0; from < k; from += len(block) {
			w := block[:min(len(block), k-from)]
			for j := range w {
				i := from + j
				b := about[i/group*Int4Meta+o/16*int4Block:]
				s := F32(uint16(b[o%16*2]) | uint16(b[o%16*2+1])<<8)
				q := words[i/8*Int4Outputs+o] >> (i % 8 * 4) & 15
				w[j] = s*float32(int(q)-int(b[32+o%16])) + 0
			}
			for r := range m {
				xr := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(x), 4*(r*xStride+from))), len(w))
				acc := (*float32)(unsafe.Add(unsafe.Pointer(out), 4*(r*outStride+o)))
				if from == 0 {
					*acc = 0
				}
				*acc = int4Chain(*acc, w, xr)
			}
		}
	}
}

// int4Chain adds the products to acc pair by pair, the odd one first. A weight has
// 12 significant bits, so that mac and plain hold as they do for BF16.
func int4Chain(acc float32, w, x []float32) float32 {
	for k := 0; k < len(w); k += 2 {
		for _, i := range [2]int{k + 1, k} {
			v := flushedF32(x[i])
			s := acc + float32(w[i]*v)
			if !plain(s) {
				s = mac(acc, w[i], v)
			}
			acc = s
		}
	}
	return acc
}

// flushedF32 is x, or a zero of its sign if it is subnormal.
func flushedF32(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}
