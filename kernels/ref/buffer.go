package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"exacta.dev/exacta/kernels"
)

// buffer is one allocation: a float64 tensor for BF16 and F32, an int32 tensor
// for I32.
type buffer struct {
	purpose    kernels.Purpose
	kind       kernels.Kind
	rows, cols int
	t          *tensor.Dense
	f          []float64 // t's elements; one of f and i
	i          []int32
	dead       bool
}

func newBuffer(p kernels.Purpose, k kernels.Kind, rows, cols int) *buffer {
	b := &buffer{purpose: p, kind: k, rows: rows, cols: cols}
	if k == kernels.I32 {
		b.t = tensor.New(tensor.WithShape(rows, cols), tensor.Of(tensor.Int32))
		b.i = b.t.Data().([]int32)
		return b
	}
	b.t = newFloats(rows, cols)
	b.f = b.t.Data().([]float64)
	return b
}

// newFloats returns a zeroed float64 tensor. Its Data is costly to call, so
// those who read elements keep the slice.
func newFloats(shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float64))
}

func (b *buffer) bytes() int64 { return int64(b.t.MemSize()) }

// view is a resolved kernels.Buf: an operand.
type view struct {
	b                    *buffer
	kind                 kernels.Kind
	row, rows, col, cols int
}

// none reports whether the operand was left out.
func (v view) none() bool { return v.b == nil }

// floats returns row i of a float view, in place.
func (v view) floats(i int) []float64 {
	at := (v.row+i)*v.b.cols + v.col
	return v.b.f[at : at+v.cols : at+v.cols]
}

// ints returns row i of an I32 view, in place.
func (v view) ints(i int) []int32 {
	at := (v.row+i)*v.b.cols + v.col
	return v.b.i[at : at+v.cols : at+v.cols]
}

// int returns element (i, 0) of an I32 view.
func (v view) int(i int) int { return int(v.ints(i)[0]) }

// setInt sets element (i, 0) of an I32 view.
func (v view) setInt(i, x int) { v.ints(i)[0] = int32(x) }

// copyRow copies row j of src to row i of v, whatever the kind.
func (v view) copyRow(i int, src view, j int) {
	if v.kind == kernels.I32 {
		copy(v.ints(i), src.ints(j))
		return
	}
	copy(v.floats(i), src.floats(j))
}

// clearRow zeroes row i.
func (v view) clearRow(i int) {
	if v.kind == kernels.I32 {
		clear(v.ints(i))
		return
	}
	clear(v.floats(i))
}

// decode fills the view from dense little-endian rows.
func (v view) decode(src []byte) {
	for i := range v.rows {
		switch v.kind {
		case kernels.BF16:
			for j := range v.floats(i) {
				bits := uint32(binary.LittleEndian.Uint16(src)) << 16
				v.floats(i)[j] = float64(math.Float32frombits(bits))
				src = src[2:]
			}
		case kernels.F32:
			for j := range v.floats(i) {
				v.floats(i)[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(src)))
				src = src[4:]
			}
		default:
			for j := range v.ints(i) {
				v.ints(i)[j] = int32(binary.LittleEndian.Uint32(src))
				src = src[4:]
			}
		}
	}
}

// encode writes the view as dense little-endian rows, rounded to its kind.
func (v view) encode(dst []byte) {
	for i := range v.rows {
		switch v.kind {
		case kernels.BF16:
			for _, x := range v.floats(i) {
				binary.LittleEndian.PutUint16(dst, bf16(float32(x)))
				dst = dst[2:]
			}
		case kernels.F32:
			for _, x := range v.floats(i) {
				binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(x)))
				dst = dst[4:]
			}
		default:
			for _, x := range v.ints(i) {
				binary.LittleEndian.PutUint32(dst, uint32(x))
				dst = dst[4:]
			}
		}
	}
}

// bf16 rounds to nearest even; a NaN stays a NaN.
func bf16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// view resolves a handle; what names the operand in errors.
func (be *Backend) view(b kernels.Buf, what string) (view, error) {
	buf, ok := be.bufs[b.ID]
	switch {
	case !ok:
		return view{}, fmt.Errorf("%s is not a live buffer of this backend (handle %d)", what, b.ID)
	case b.Kind != buf.kind:
		return view{}, fmt.Errorf("%s is a %s view of a %s buffer", what, b.Kind, buf.kind)
	case b.Row < 0 || b.Rows < 0 || int(b.Row)+int(b.Rows) > buf.rows,
		b.Col < 0 || b.Cols < 0 || int(b.Col)+int(b.Cols) > buf.cols:
		return view{}, fmt.Errorf("%s views rows %d+%d, columns %d+%d of a buffer of [%d, %d]",
			what, b.Row, b.Rows, b.Col, b.Cols, buf.rows, buf.cols)
	}
	be.touched = append(be.touched, buf)
	return view{b: buf, kind: buf.kind, row: int(b.Row), rows: int(b.Rows), col: int(b.Col), cols: int(b.Cols)}, nil
}
