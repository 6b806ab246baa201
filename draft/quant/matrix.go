package quant

import (
	"fmt"
	"math"
	"slices"

	"exacta.dev/exacta/kernels"
)

// Options say how weights are rounded.
type Options struct {
	Group      int  // columns that share a scale: one of kernels.Int4Groups
	ZeroPoints bool // a zero point for each group; else weights are symmetric
}

// Check names the option that is out of range; name and cols are of a matrix.
func (o Options) Check(name string, cols int) error {
	if !slices.Contains(kernels.Int4Groups, o.Group) {
		return fmt.Errorf("group %d; it must be one of %v", o.Group, kernels.Int4Groups)
	}
	if cols%o.Group != 0 {
		return fmt.Errorf("group %d does not divide the %d columns of %s; take a smaller one of %v", o.Group, cols, name, kernels.Int4Groups)
	}
	return nil
}

// Matrix is a quantised matrix, as a file has it.
type Matrix struct {
	Rows, Cols, Group int
	Nibbles           []byte   // [Rows, Cols/2]
	Scales            []uint16 // BF16 [Rows, Cols/Group]
	Zeros             []byte   // [Rows, Cols/Group]; nil: symmetric
}

func newMatrix(rows, cols int, o Options) *Matrix {
	m := &Matrix{Rows: rows, Cols: cols, Group: o.Group, Nibbles: make([]byte, rows*cols/2), Scales: make([]uint16, rows*cols/o.Group)}
	if o.ZeroPoints {
		m.Zeros = make([]byte, len(m.Scales))
	}
	return m
}

// Bytes returns the size in a file.
func (m *Matrix) Bytes() int64 {
	return int64(len(m.Nibbles)) + 2*int64(len(m.Scales)) + int64(len(m.Zeros))
}

// grid is a scale and zero point: the 16 numbers that a group can hold.
type grid struct{ scale, zero float32 }

// nearest returns the 4 bits that stand for the number nearest to w, and the number.
func (g grid) nearest(w float32) (q byte, v float32) {
	if g.scale == 0 {
		return byte(g.zero), 0
	}
	f := min(max(math.RoundToEven(float64(w/g.scale+g.zero)), 0), 15)
	return byte(f), g.scale * (float32(f) - g.zero)
}

func (m *Matrix) put(row, col int, q byte) {
	m.Nibbles[(row*m.Cols+col)/2] |= q << (4 * (col & 1))
}

func (m *Matrix) putGrid(row, col int, g grid) {
	at := (row*m.Cols + col) / m.Group
	m.Scales[at] = uint16(math.Float32bits(g.scale) >> 16)
	if m.Zeros != nil {
		m.Zeros[at] = byte(g.zero)
	}
}

// newGrid fits a grid around the weights of a group, shrunk by clip. The scale is one
// that BF16 holds and kernels accept.
func newGrid(w []float32, zeroPoints bool, clip float32) grid {
	lo, hi := slices.Min(w), slices.Max(w)
	g := grid{zero: kernels.Int4Zero}
	if zeroPoints {
		lo, hi = min(lo, 0), max(hi, 0)
		if g.scale = bf16((hi - lo) * clip / 15); g.scale != 0 {
			g.zero = min(max(float32(math.RoundToEven(float64(-lo*clip/g.scale))), 0), 15)
		}
	} else if -lo >= hi {
		g.scale = bf16(-lo * clip / 8)
	} else {
		g.scale = bf16(-hi * clip / 8) // the eighth step is on the side of the largest
	}
	if a := math.Abs(float64(g.scale)); a < 0x1p-100 || a > 0x1p100 {
		g.scale, g.zero = 0, kernels.Int4Zero
	}
	return g
}

// bf16 rounds to nearest even.
func bf16(f float32) float32 {
	b := math.Float32bits(f)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// RoundToNearest quantises w, [rows, cols] row-major.
func RoundToNearest(name string, w []float32, rows, cols int, o Options) (*Matrix, error) {
	if err := o.Check(name, cols); err != nil {
		return nil, err
	}
	m := newMatrix(rows, cols, o)
	parallel(rows, func(r int) {
		for c := 0; c < cols; c += o.Group {
			group := w[r*cols+c:][:o.Group]
			g := newGrid(group, o.ZeroPoints, 1)
			m.putGrid(r, c, g)
			for i, v := range group {
				q, _ := g.nearest(v)
				m.put(r, c+i, q)
			}
		}
	})
	return m, nil
}
