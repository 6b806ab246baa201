package kernels

import (
	"fmt"
	"io"
)

// Weight is the handle of a parameter that a backend has taken in (packed,
// widened or copied to a device), immutable from then on. The zero Weight
// means "none".
type Weight struct{ ID uint32 }

// None reports whether w is the zero Weight.
func (w Weight) None() bool { return w.ID == 0 }

// DType is the element type of a tensor in a file.
type DType uint8

// File element types that backends accept.
const (
	DTypeBF16 DType = iota + 1
	DTypeF16
	DTypeF32
	// DTypeInt4 is 4 bits with scales and zero points by group: see Int4. For
	// a Matrix that is not embedded from.
	DTypeInt4
)

// Size returns the bytes of one element; 0 for DTypeInt4, of which two make one.
func (d DType) Size() int {
	switch d {
	case DTypeF32:
		return 4
	case DTypeInt4:
		return 0
	}
	return 2
}

// String names the type as safetensors does.
func (d DType) String() string {
	switch d {
	case DTypeBF16:
		return "BF16"
	case DTypeF16:
		return "F16"
	case DTypeF32:
		return "F32"
	case DTypeInt4:
		return "INT4"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Use says how a parameter will be used and thereby how a backend stores it.
type Use uint8

// Uses of parameters.
const (
	// Matrix is the weight [N, K] of a linear map y = x Wᵀ. Stored as BF16
	// (other file types are rounded once). Also the source of Queue.Embed,
	// which gathers its rows, so that tied embeddings are held once.
	Matrix Use = iota + 1
	// Vector is a row [1, N] kept in FP32: norm weights, A_log, dt_bias.
	Vector
	// Taps is a depthwise convolution kernel [C, K], kept in FP32.
	Taps
	// Table is a float32 table [rows, cols] read by row: rotary cosines and
	// sines by position.
	Table
	// Bank is the matrices of a mixture's experts, one a part, or two (gate
	// and up) where it is Paired: all of one shape [N, K], stored as a Matrix
	// is. Queue.Experts and Queue.Mix multiply by one of them per row.
	Bank
	// Diagonal is the blocks of a block-diagonal matrix, one a part, all of one
	// shape [N, K], stored as a Matrix is: see Queue.Blocks.
	Diagonal
	// Rows is a table [rows, cols] of which Queue.Lookup gathers rows, so large
	// that a backend on the host leaves it in the file where that is mapped
	// (Viewer) and reads the rows that are asked for.
	Rows
)

// Source is one tensor of a file: Rows x Cols elements of DType, row-major,
// little-endian, read through Data from offset 0.
type Source struct {
	Name       string
	Rows, Cols int
	DType      DType
	Data       io.ReaderAt
	Int4       *Int4 // of DTypeInt4 alone
}

// Viewer is the Data of a Source whose bytes lie in memory, such as a mapped file.
type Viewer interface {
	io.ReaderAt
	// View returns n bytes from off on where they lie, not to be written; nil
	// where they must be read by ReadAt.
	View(off int64, n int) []byte
	// Check is what ReadAt does beside reading: its error names the first of n
	// bytes from off on that are no finite number. Who finds that there is
	// none need not call it.
	Check(off int64, n int) error
	// Drop says that n bytes from off on have been taken in, so that they
	// need not stay in memory.
	Drop(off int64, n int) error
}

// Tensor is a parameter to load: one source, or several stacked along the
// output rows in the order given.
type Tensor struct {
	Name  string
	Use   Use
	Parts []Source
	// Paired says that the two parts are gate and up of a SwiGLU: output i
	// of the first is consumed together with output i of the second
	// (Linear.Act = SwiGLU), so a backend may interleave them.
	Paired bool
}

// Shape returns the stacked shape.
func (t Tensor) Shape() (rows, cols int) {
	for _, p := range t.Parts {
		rows += p.Rows
		cols = p.Cols
	}
	return rows, cols
}

// Int4 reports whether the parts are of DTypeInt4; Check makes sure that all are or
// none.
func (t Tensor) Int4() bool { return t.Parts[0].DType == DTypeInt4 }

func (t Tensor) checkInt4(p Source) error {
	first := t.Parts[0]
	switch {
	case (p.DType == DTypeInt4) != t.Int4():
		return fmt.Errorf("load %s: part %s is %s, part %s is %s; INT4 stacks with INT4 alone", t.Name, p.Name, p.DType, first.Name, first.DType)
	case !t.Int4():
		return nil
	case t.Use != Matrix:
		return fmt.Errorf("load %s: part %s is INT4; only a matrix can be", t.Name, p.Name)
	}
	if err := p.checkInt4(); err != nil {
		return fmt.Errorf("load %s: part %s %w", t.Name, p.Name, err)
	}
	if p.Int4.Group != first.Int4.Group {
		return fmt.Errorf("load %s: part %s has groups of %d columns, part %s of %d; stacked parts must agree", t.Name, p.Name, p.Int4.Group, first.Name, first.Int4.Group)
	}
	return nil
}

// Check validates the description; backends call it first in Load.
func (t Tensor) Check() error {
	if len(t.Parts) == 0 {
		return fmt.Errorf("load %s: no parts", t.Name)
	}
	for _, p := range t.Parts {
		switch {
		case p.Rows <= 0 || p.Cols <= 0:
			return fmt.Errorf("load %s: part %s has shape [%d, %d]; dimensions must be positive", t.Name, p.Name, p.Rows, p.Cols)
		case p.Cols != t.Parts[0].Cols:
			return fmt.Errorf("load %s: part %s has %d columns, part %s has %d; stacked parts must agree", t.Name, p.Name, p.Cols, t.Parts[0].Name, t.Parts[0].Cols)
		case p.DType < DTypeBF16 || p.DType > DTypeInt4:
			return fmt.Errorf("load %s: part %s has an element type that is not BF16, F16, F32 or INT4", t.Name, p.Name)
		case p.Data == nil:
			return fmt.Errorf("load %s: part %s has no data", t.Name, p.Name)
		}
		if err := t.checkInt4(p); err != nil {
			return err
		}
	}
	if t.Use < Matrix || t.Use > Rows {
		return fmt.Errorf("load %s: unknown use %d", t.Name, t.Use)
	}
	if t.Use == Bank || t.Use == Diagonal {
		return t.checkBank()
	}
	if t.Paired && (len(t.Parts) != 2 || t.Parts[0].Rows != t.Parts[1].Rows) {
		return fmt.Errorf("load %s: a paired tensor has two parts of equal shape", t.Name)
	}
	return nil
}

// Experts returns the matrices of a Bank or Diagonal, each as a tensor of use Matrix.
func (t Tensor) Experts() []Tensor {
	n := 1
	if t.Paired {
		n = 2
	}
	out := make([]Tensor, len(t.Parts)/n)
	for i := range out {
		out[i] = Tensor{Name: t.Name, Use: Matrix, Paired: t.Paired, Parts: t.Parts[i*n : (i+1)*n]}
	}
	return out
}

func (t Tensor) checkBank() error {
	if t.Paired && t.Use == Diagonal {
		return fmt.Errorf("load %s: blocks on a diagonal are not paired", t.Name)
	}
	if t.Paired && len(t.Parts)%2 != 0 {
		return fmt.Errorf("load %s: a paired bank has two parts an expert; there are %d", t.Name, len(t.Parts))
	}
	for _, p := range t.Parts {
		if p.Rows != t.Parts[0].Rows {
			return fmt.Errorf("load %s: part %s has %d rows, part %s has %d; the matrices must be of one shape", t.Name, p.Name, p.Rows, t.Parts[0].Name, t.Parts[0].Rows)
		}
	}
	return nil
}
