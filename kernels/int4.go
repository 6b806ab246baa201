package kernels

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Int4 completes a Source of element type DTypeInt4, whose Data are nibbles
// [Rows, Cols/2], the even column of a pair in the low half of the byte. Each
// Group consecutive columns of a row share a scale and a zero point, and stand for
//
//	w = float32(scale) * (q - zero)
//
// which needs 12 significant bits, so that it is exact in float32; a zero is +0.
// The product of w and a BF16 number has 20 bits and is exact too: a matrix product
// adds those products as the backend adds the products of a BF16 matrix (cpu: in one
// FP32 chain, each sum rounded once; cuda: in steps of 16 columns, of the BF16 number
// nearest to w and then of what is left of w). "Dequantise, then multiply" is
// therefore the definition, and gives the same bits where BF16 holds w.
type Int4 struct {
	// Group is one of Int4Groups and divides Cols.
	Group int
	// Scales are BF16 [Rows, Cols/Group]: each is zero, or a normal number
	// from 2^-100 to 2^100 in magnitude, so that no weight overflows.
	Scales io.ReaderAt
	// Zeros are bytes [Rows, Cols/Group] in 0..15; nil says that the weights
	// are symmetric: all zero points are Int4Zero.
	Zeros io.ReaderAt
}

// Int4Zero is the zero point of symmetric weights.
const Int4Zero = 8

// Int4Groups are the sizes of a group.
var Int4Groups = []int{32, 64, 128}

func (s Source) checkInt4() error {
	switch {
	case s.Int4 == nil || s.Int4.Scales == nil:
		return errors.New("is INT4 without scales")
	case !slices.Contains(Int4Groups, s.Int4.Group):
		return fmt.Errorf("has groups of %d columns; they must be one of %v", s.Int4.Group, Int4Groups)
	case s.Cols%s.Int4.Group != 0:
		return fmt.Errorf("has %d columns, which groups of %d don't divide", s.Cols, s.Int4.Group)
	}
	return nil
}

// Int4Rows are some rows of an Int4 source.
type Int4Rows struct {
	Cols, Group int
	Nibbles     []byte    // [rows, Cols/2]
	Scales      []float32 // [rows, Cols/Group]
	Zeros       []byte    // likewise
}

// ReadInt4 reads rows [from, from+n) of a source whose Check has passed. A file that
// ends early, a scale that is out of range or a zero point above 15 is an error that
// names the row.
func (s Source) ReadInt4(from, n int) (Int4Rows, error) {
	groups := s.Cols / s.Int4.Group
	r := Int4Rows{Cols: s.Cols, Group: s.Int4.Group, Nibbles: make([]byte, n*s.Cols/2), Scales: make([]float32, n*groups), Zeros: make([]byte, n*groups)}
	raw := make([]byte, 2*n*groups)
	for _, p := range []struct {
		what string
		dst  []byte
		src  io.ReaderAt
	}{{"weights", r.Nibbles, s.Data}, {"scales", raw, s.Int4.Scales}, {"zero points", r.Zeros, s.Int4.Zeros}} {
		if p.src == nil {
			for i := range p.dst {
				p.dst[i] = Int4Zero
			}
			continue
		}
		got, err := p.src.ReadAt(p.dst, int64(from)*int64(len(p.dst)/n))
		if got == len(p.dst) {
			continue
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return r, fmt.Errorf("%s of rows %d to %d: %w", p.what, from, from+n-1, err)
	}
	for i := range r.Scales {
		f := math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		if a := math.Abs(float64(f)); a != 0 && !(a >= 0x1p-100 && a <= 0x1p100) {
			return r, fmt.Errorf("row %d has scale %v; it must be 0, or from 2^-100 to 2^100 in magnitude", from+i/groups, f)
		}
		if r.Zeros[i] > 15 {
			return r, fmt.Errorf("row %d has zero point %d; it must be 0..15", from+i/groups, r.Zeros[i])
		}
		r.Scales[i] = f
	}
	return r, nil
}

// Nibble returns the 4 bits of column c of row i.
func (r Int4Rows) Nibble(i, c int) byte {
	return r.Nibbles[(i*r.Cols+c)/2] >> (4 * (c & 1)) & 15
}

// Dequantize writes row i in float32: the definition of what the 4 bits stand for.
func (r Int4Rows) Dequantize(dst []float32, i int) {
	for c := range r.Cols {
		g := i*(r.Cols/r.Group) + c/r.Group
		dst[c] = r.Scales[g]*float32(int(r.Nibble(i, c))-int(r.Zeros[g])) + 0
	}
}
