package vec

import (
	"math"
	"unsafe"
)

// tiny is the largest magnitude of an exact partial sum that rounds, at 24 bits
// and without a lower limit on the exponent, to less than the smallest normal
// float32. Flush-to-zero acts on that rounded value, so a sum in between that
// and 2^-126 is a normal number.
const tiny = 0x1p-126 * (1 - 0x1p-25)

// mac returns one step of the chain: acc + w*x, rounded once, a subnormal result
// flushed to a zero of its sign. w and x are BF16 numbers without subnormals, so
// their product is exact in float64, and rounding the sum to 53 and then to 24
// bits is rounding once. This is the definition.
func mac(acc, w, x float32) float32 {
	s := float64(float64(w)*float64(x)) + float64(acc)
	if math.Abs(s) < tiny {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// plain reports that the float32 sum s = acc + w*x is what mac returns. The
// product is exact unless it leaves float32's range: a sum from 2^-100 to 2^121
// shows that it did not overflow; and if it was subnormal, it was too small beside
// acc to matter.
func plain(s float32) bool { return math.Float32bits(s)>>23&0xff-27 < 221 }

// flushed widens a BF16 number in the upper half of b with a subnormal as a zero
// of its sign.
func flushed(b uint32) float32 {
	if b&0x7f800000 == 0 {
		b &= 0x80000000
	}
	return math.Float32frombits(b)
}

// goGemm is Gemm of the Go set.
func goGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	if k2 < 1 && load {
		return
	}
	n := 16 * vecs
	w := unsafe.Slice(panel, max(0, (k2-1)*2*PanelRows+2*n))
	for r := range m {
		xr := unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(x), 2*r*xStride)), 2*k2)
		or := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(out), 4*r*outStride)), n)
		for i, v := range or {
			if or[i] = 0; load {
				or[i] = v
				if math.Float32bits(v)&0x7f800000 == 0 {
					or[i] = float32(math.Copysign(0, float64(v))) // subnormal input
				}
			}
		}
		for k := range k2 {
			x0, x1 := flushed(uint32(xr[2*k])<<16), flushed(uint32(xr[2*k+1])<<16)
			wk := w[k*2*PanelRows:][:2*n]
			for i, acc := range or {
				w0, w1 := flushed(uint32(wk[2*i])<<16), flushed(uint32(wk[2*i+1])<<16)
				s := acc + float32(w1*x1)
				if !plain(s) {
					s = mac(acc, w1, x1)
				}
				if or[i] = s + float32(w0*x0); !plain(or[i]) {
					or[i] = mac(s, w0, x0)
				}
			}
		}
	}
}
