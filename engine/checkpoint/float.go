package checkpoint

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// littleEndian is true where a cast over the bytes of a file gives its values.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// view casts the bytes of t to elements of its size when the machine allows
// it, and copies otherwise.
func view[T uint16 | float32](t Tensor) ([]T, error) {
	var err error
	if t.data, err = t.bytes(); err != nil {
		return nil, err
	}
	var zero T
	size := int(unsafe.Sizeof(zero))
	n := len(t.data) / size
	if n == 0 {
		return nil, nil
	}
	if littleEndian && t.Aligned() {
		return unsafe.Slice((*T)(unsafe.Pointer(&t.data[0])), n), nil
	}
	out := make([]T, n)
	for i := range out {
		switch p := any(&out[i]).(type) {
		case *uint16:
			*p = binary.LittleEndian.Uint16(t.data[i*2:])
		case *float32:
			*p = math.Float32frombits(binary.LittleEndian.Uint32(t.data[i*4:]))
		}
	}
	return out, nil
}

func bf16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// f16ToF32 widens an IEEE half: exact for every value, subnormals included.
func f16ToF32(b uint16) float32 {
	sign := uint32(b&0x8000) << 16
	exp, frac := uint32(b>>10)&0x1f, uint32(b)&0x3ff
	switch exp {
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case 0:
		v := float32(frac) * 0x1p-24
		return math.Float32frombits(math.Float32bits(v) | sign)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

func f32At(p []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(p)) }
