package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// rowReader makes the rows of a tensor (along its last dimension) out of what the
// file stores. It is safe for concurrent use.
type rowReader interface {
	// readRows writes rows [first, first+n), each of len(dst)/n bytes, as
	// little-endian elements of the tensor's DType.
	readRows(dst []byte, first, n int) error
}

// readConverted is ReadAt of a tensor that a rowReader makes; p does not reach past
// the end.
func (t Tensor) readConverted(p []byte, off int64) error {
	line := int64(t.Shape[len(t.Shape)-1] * t.DType.Size())
	var one []byte
	for len(p) > 0 {
		row, skip := off/line, off%line
		n := int64(len(p)) / line
		if skip > 0 || n == 0 { // a part of a row
			if one == nil {
				one = make([]byte, line)
			}
			if err := t.rows.readRows(one, int(row), 1); err != nil {
				return t.failed(err)
			}
			n = int64(copy(p, one[skip:]))
		} else {
			if err := t.rows.readRows(p[:n*line], int(row), int(n)); err != nil {
				return t.failed(err)
			}
			n *= line
		}
		p, off = p[n:], off+n
	}
	return nil
}

func (t Tensor) failed(err error) error {
	return fmt.Errorf("tensor %q in %s: %w", t.Name, t.File, err)
}

// bytes returns the elements as raw little-endian bytes: the file's own where it
// stores them so, else made.
func (t Tensor) bytes() ([]byte, error) {
	if t.rows == nil {
		return t.data, nil
	}
	all := make([]byte, t.Size())
	if _, err := t.ReadAt(all, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return all, nil
}

// putBF16 writes values as BF16, rounded to nearest with ties to even; a NaN stays
// one.
func putBF16(dst []byte, values []float32) {
	for i, v := range values {
		b := math.Float32bits(v)
		if v != v {
			b |= 0x400000
		} else {
			b += 0x7fff + b>>16&1
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(b>>16))
	}
}
