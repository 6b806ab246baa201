package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Finite reads the bytes of a BF16, F16 or F32 tensor as ReadAt does, and fails at
// the first NaN or infinity, with an error that names the tensor, the file and the
// element: a loader checks what it reads anyway. Offsets must be those of elements.
type Finite struct{ Tensor }

var _ io.ReaderAt = Finite{}

// ReadAt implements io.ReaderAt.
func (f Finite) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.Tensor.ReadAt(p, off)
	if bad := f.checkFinite(p[:n], off); bad != nil {
		return 0, bad
	}
	return n, err
}

// View returns n bytes from off on where they lie in the file, unchecked; nil where
// they are not all there, or the tensor is expanded as it is read. The system is asked
// for what lies behind them in the file: who views a tensor takes in all of it.
func (f Finite) View(off int64, n int) []byte {
	f.reach(off)
	if f.rows != nil || off < 0 || n < 0 || off > f.Size()-int64(n) {
		return nil
	}
	return f.data[off : off+int64(n) : off+int64(n)]
}

// reach asks for the file from the byte on of which the one at off is made.
func (f Finite) reach(off int64) {
	if size := f.Size(); f.file != nil && off >= 0 && off < size {
		f.file.reach(f.data[int(float64(off)/float64(size)*float64(len(f.data))):])
	}
}

// Check is the check of ReadAt for bytes that View has given.
func (f Finite) Check(off int64, n int) error { return f.checkFinite(f.View(off, n), off) }

// Drop is Discard for what n bytes from off on are made of.
func (f Finite) Drop(off int64, n int) error {
	if size := f.Size(); f.file != nil && size > 0 {
		stored := float64(len(f.data)) / float64(size)
		lo, hi := int(float64(off)*stored), int(float64(off+int64(n))*stored)
		f.data = f.data[max(lo, 0):min(hi, len(f.data))]
		return f.Discard()
	}
	return nil
}

// CheckFinite reports the first NaN or infinity of a tensor, as Finite does.
func (t Tensor) CheckFinite() error {
	const block = 1 << 18
	var buf []byte
	for at := int64(0); at < t.Size(); at += block {
		n := min(block, t.Size()-at)
		p := buf
		if t.rows == nil {
			p = t.data[at : at+n]
		} else {
			if buf == nil {
				buf = make([]byte, block)
			}
			p = buf[:n]
			if err := t.readConverted(p, at); err != nil {
				return err
			}
		}
		if err := t.checkFinite(p, at); err != nil {
			return err
		}
	}
	return nil
}

// checkFinite looks at each byte of p, which lies at off, once, eight at a time: a
// value is finite exactly if its exponent bits are not all ones, and adding the
// lowest exponent bit to the masked exponent carries into the sign bit exactly if
// they are.
func (t Tensor) checkFinite(p []byte, off int64) error {
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
	for at := 0; at < len(p); at += block {
		part := p[at:min(at+block, len(p))]
		if hasNonFinite(part, mask, one, t.DType == F32) {
			return t.nonFinite(part, off+int64(at))
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

// nonFinite makes the error for the first bad element of p, which lies at off.
func (t Tensor) nonFinite(p []byte, off int64) error {
	size := t.DType.Size()
	for i := int(off) / size; ; i++ {
		var v float32
		switch t.DType {
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
		p = p[size:]
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
