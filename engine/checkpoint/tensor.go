package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"
)

// Tensor is one named array of a checkpoint. Its bytes are raw, little-endian,
// row-major (the last dimension runs fastest), and belong to the checkpoint:
// they are read-only and valid until it is closed.
type Tensor struct {
	Name   string // normalised, see NormalName
	Source string // as the file spells it
	File   string // base name of the file that holds it
	Stored string // the type in which the file holds it, where that is not DType
	DType  DType
	Shape  []int // of [out, in] for weights; empty for a scalar; not to be changed

	data []byte    // as stored
	rows rowReader // makes the elements; nil where data is the elements
	file *mapping  // in which data lies; nil where it is not mapped
}

var _ io.ReaderAt = Tensor{}

// Len is the number of elements.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Size is the number of bytes of the elements.
func (t Tensor) Size() int64 {
	if t.rows != nil {
		return int64(t.Len()) * int64(t.DType.Size())
	}
	return int64(len(t.data))
}

// StoredSize is the number of bytes that the file has for the tensor.
func (t Tensor) StoredSize() int64 { return int64(len(t.data)) }

// Bytes returns the bytes as the file stores them, without copying. They must not
// be written.
func (t Tensor) Bytes() []byte { return t.data }

// ReadAt copies raw bytes from offset off on, as io.ReaderAt defines it.
func (t Tensor) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("tensor %q: offset %d is negative", t.Name, off)
	}
	size := t.Size()
	if off >= size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), size-off))
	if t.rows == nil {
		copy(p[:n], t.data[off:])
	} else if err := t.readConverted(p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Aligned reports whether the first byte lies at a multiple of the element
// size, so that a slice of elements may be cast over the bytes. The format
// does not promise it.
func (t Tensor) Aligned() bool {
	size := t.DType.Size()
	return size <= 1 || len(t.data) == 0 || uintptr(unsafe.Pointer(&t.data[0]))%uintptr(size) == 0
}

// Uint16s returns the elements of a BF16 or F16 tensor as their bit patterns:
// a view of the bytes when they are aligned, else a copy.
func (t Tensor) Uint16s() ([]uint16, error) {
	if t.DType != BF16 && t.DType != F16 {
		return nil, fmt.Errorf("tensor %q is %s; BF16 or F16 was asked for", t.Name, t.DType)
	}
	return view[uint16](t)
}

// Float32s returns the elements as float32: for F32 a view of the bytes when
// they are aligned, else a copy; for BF16 and F16 a widened copy, which is
// exact.
func (t Tensor) Float32s() ([]float32, error) {
	switch t.DType {
	case F32:
		return view[float32](t)
	case BF16, F16:
		bits, err := view[uint16](t)
		if err != nil {
			return nil, err
		}
		out := make([]float32, len(bits))
		widen := f16ToF32
		if t.DType == BF16 {
			widen = bf16ToF32
		}
		for i, b := range bits {
			out[i] = widen(b)
		}
		return out, nil
	}
	return nil, fmt.Errorf("tensor %q is %s; weights must be BF16, F16 or F32", t.Name, t.DType)
}

// Discard tells the system that the bytes will not be needed again soon, so
// that it may drop its resident copy. They stay readable. It does nothing for
// tensors that are not mapped from a file.
func (t Tensor) Discard() error {
	if t.file == nil {
		return nil
	}
	if err := discard(t.data); err != nil {
		return fmt.Errorf("tensor %q: discard: %w", t.Name, err)
	}
	return nil
}

// Float32s widens raw little-endian elements of type BF16, F16 or F32.
func Float32s(d DType, raw []byte) ([]float32, error) {
	if d.IsFloat() && len(raw)%d.Size() != 0 {
		return nil, fmt.Errorf("%d bytes are no whole number of %s elements", len(raw), d)
	}
	return Tensor{Name: "values", DType: d, data: raw}.Float32s()
}

// Ints returns the n elements of an integer tensor (I64 or I32). The error says what
// the tensor is instead.
func (t Tensor) Ints(n int) ([]int64, error) {
	if t.Len() != n || t.DType != I64 && t.DType != I32 {
		return nil, fmt.Errorf("is %s %v; it must be I64 or I32 with %d elements", t.DType, t.Shape, n)
	}
	out := make([]int64, n)
	for i := range out {
		if t.DType == I64 {
			out[i] = int64(binary.LittleEndian.Uint64(t.data[8*i:]))
		} else {
			out[i] = int64(int32(binary.LittleEndian.Uint32(t.data[4*i:])))
		}
	}
	return out, nil
}
