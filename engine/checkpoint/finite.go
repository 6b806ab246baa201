package checkpoint

import (
	"encoding/binary"
	"fmt"
)

// CheckFinite reports the first NaN or infinity of a BF16, F16 or F32 tensor
// as an error that names the tensor, the file, and the element. It reads each
// byte once, eight at a time: a value is finite exactly if its exponent bits
// are not all ones, and adding the lowest exponent bit to the masked exponent
// carries into the sign bit exactly if they are.
func (t Tensor) CheckFinite() error {
	var mask, one uint64
	switch t.DType {
	case BF16:
		mask, one = 0x7f807f807f807f80, 0x0080008000800080
	case F16:
		mask, one = 0x7c007c007c007c00, 0x0400040004000400
	case F32:
		mask, one = 0x7f8000007f800000, 0x0080000000800000
	default:
		return fmt.Errorf("tensor %q in %s is %s; weights must be BF16, F16 or F32", t.Name, t.File, t.DType)
	}
	const block = 1 << 12
	for at := 0; at < len(t.data); at += block {
		part := t.data[at:min(at+block, len(t.data))]
		if hasNonFinite(part, mask, one, t.DType == F32) {
			return t.nonFinite(at)
		}
	}
	return nil
}

func hasNonFinite(p []byte, mask, one uint64, wide bool) bool {
	sign := uint64(0x8000800080008000)
	if wide {
		sign = 0x8000000080000000
	}
	var a, b, c, d uint64
	for len(p) >= 32 {
		a |= binary.LittleEndian.Uint64(p)&mask + one
		b |= binary.LittleEndian.Uint64(p[8:])&mask + one
		c |= binary.LittleEndian.Uint64(p[16:])&mask + one
		d |= binary.LittleEndian.Uint64(p[24:])&mask + one
		p = p[32:]
	}
	for len(p) > 0 {
		var tail [8]byte
		p = p[copy(tail[:], p):]
		a |= binary.LittleEndian.Uint64(tail[:])&mask + one
	}
	return (a|b|c|d)&sign != 0
}

// nonFinite makes the error for the first bad element at or after byte at.
func (t Tensor) nonFinite(at int) error {
	size := t.DType.Size()
	for i := at / size; ; i++ {
		var v float32
		switch p := t.data[i*size:]; t.DType {
		case BF16:
			v = bf16ToF32(binary.LittleEndian.Uint16(p))
		case F16:
			v = f16ToF32(binary.LittleEndian.Uint16(p))
		default:
			v = f32At(p)
		}
		if v-v != 0 {
			return fmt.Errorf("tensor %q in %s: element %d (index %v) is %v; weights must be finite", t.Name, t.File, i, t.index(i), v)
		}
	}
}

// index is the position of element i in each dimension.
func (t Tensor) index(i int) []int {
	out := make([]int, len(t.Shape))
	for d := len(t.Shape) - 1; d >= 0; d-- {
		out[d] = i % t.Shape[d]
		i /= t.Shape[d]
	}
	return out
}
