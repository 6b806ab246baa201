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
)

// Size returns the bytes of one element.
func (d DType) Size() int {
	if d == DTypeF32 {
		return 4
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
)

// Source is one tensor of a file: Rows x Cols elements of DType, row-major,
// little-endian, read through Data from offset 0.
type Source struct {
	Name       string
	Rows, Cols int
	DType      DType
	Data       io.ReaderAt
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
		case p.DType < DTypeBF16 || p.DType > DTypeF32:
			return fmt.Errorf("load %s: part %s has an element type that is not BF16, F16 or F32", t.Name, p.Name)
		case p.Data == nil:
			return fmt.Errorf("load %s: part %s has no data", t.Name, p.Name)
		}
	}
	if t.Paired && (len(t.Parts) != 2 || t.Parts[0].Rows != t.Parts[1].Rows) {
		return fmt.Errorf("load %s: a paired tensor has two parts of equal shape", t.Name)
	}
	if t.Use < Matrix || t.Use > Table {
		return fmt.Errorf("load %s: unknown use %d", t.Name, t.Use)
	}
	return nil
}
