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
// bits is rounding once.
func mac(acc float32, w, x float64) float32 {
	s := float64(w*x) + float64(acc)
	if math.Abs(s) < tiny {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// wide widens a BF16 number to float64 with subnormals as zeros of their sign.
func wide(b uint16) float64 {
	if b&0x7f80 == 0 {
		b &= 0x8000
	}
	return float64(F32(b))
}

// goGemm is Gemm of the Go set.
func goGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	n := 16 * vecs
	w := unsafe.Slice(panel, max(0, (k2-1)*2*PanelRows+2*n))
	for r := range m {
		xr := unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(x), 2*r*xStride)), 2*k2)
		or := unsafe.Slice((*float32)(unsafe.Add(unsafe.Pointer(out), 4*r*outStride)), n)
		for i := range or {
			if !load {
				or[i] = 0
			} else if k2 > 0 && math.Float32bits(or[i])&0x7f800000 == 0 {
				or[i] = float32(math.Copysign(0, float64(or[i]))) // subnormal input
			}
		}
		for k := range k2 {
			x0, x1 := wide(xr[2*k]), wide(xr[2*k+1])
			wk := w[k*2*PanelRows:][:2*n]
			for i := range or {
				or[i] = mac(mac(or[i], wide(wk[2*i+1]), x1), wide(wk[2*i]), x0)
			}
		}
	}
}
