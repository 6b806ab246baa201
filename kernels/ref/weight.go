package ref

import (
	"encoding/binary"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"exacta.dev/exacta/kernels"
)

// panelRows is how many output rows one MatVecMul computes. It is a property of
// the weight and never of the batch.
const panelRows = 128

// weight is a parameter in float64, [rows, cols] as stacked in the file.
type weight struct {
	name       string
	use        kernels.Use
	rows, cols int
	paired     bool
	int4       bool // its file has 4 bits
	experts    int  // matrices of a Bank or Diagonal
	t          *tensor.Dense
	data       []float64       // t's elements
	panels     []*tensor.Dense // of a Matrix: views of panelRows rows of t
}

func (w *weight) bytes() int64 { return int64(w.t.MemSize()) }

// row returns row i in place.
func (w *weight) row(i int) []float64 {
	return w.data[i*w.cols : (i+1)*w.cols : (i+1)*w.cols]
}

func readWeight(t kernels.Tensor) (*weight, error) {
	rows, cols := t.Shape()
	data := make([]float64, 0, rows*cols)
	for _, p := range t.Parts {
		var err error
		read := appendSource
		if p.DType == kernels.DTypeInt4 {
			read = appendInt4
		}
		if data, err = read(data, p); err != nil {
			return nil, fmt.Errorf("load %s: %w", t.Name, err)
		}
	}
	w := &weight{
		name: t.Name, use: t.Use, rows: rows, cols: cols, paired: t.Paired, int4: t.Int4(),
		t: tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(data)), data: data,
	}
	if t.Use == kernels.Bank || t.Use == kernels.Diagonal {
		w.experts = len(t.Experts())
	}
	if t.Use == kernels.Matrix {
		for a := 0; a < rows; a += panelRows {
			n := min(panelRows, rows-a)
			w.panels = append(w.panels,
				tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(data[a*cols:(a+n)*cols])))
		}
	}
	return w, nil
}

// appendSource reads a part row by row.
func appendSource(data []float64, p kernels.Source) ([]float64, error) {
	size := p.DType.Size()
	raw := make([]byte, p.Cols*size)
	for r := range p.Rows {
		if n, err := p.Data.ReadAt(raw, int64(r)*int64(len(raw))); n < len(raw) {
			return nil, fmt.Errorf("part %s: row %d of %d: %w", p.Name, r, p.Rows, err)
		}
		for i := range p.Cols {
			data = append(data, element(p.DType, raw[i*size:]))
		}
	}
	return data, nil
}

// appendInt4 reads a part of 4 bits; what they stand for is exact.
func appendInt4(data []float64, p kernels.Source) ([]float64, error) {
	row := make([]float32, p.Cols)
	for r := range p.Rows {
		q, err := p.ReadInt4(r, 1)
		if err != nil {
			return nil, fmt.Errorf("part %s: %w", p.Name, err)
		}
		q.Dequantize(row, 0)
		for _, v := range row {
			data = append(data, float64(v))
		}
	}
	return data, nil
}

func element(d kernels.DType, b []byte) float64 {
	switch d {
	case kernels.DTypeBF16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case kernels.DTypeF16:
		return half(binary.LittleEndian.Uint16(b))
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// half widens an IEEE 754 binary16.
func half(h uint16) float64 {
	exp, frac := int(h>>10&31), float64(h&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		f = math.Inf(1)
		if frac != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+frac, exp-25)
	}
	if h>>15 != 0 {
		f = -f
	}
	return f
}

// weight resolves a handle for a use; what names the operand in errors.
func (be *Backend) weight(h kernels.Weight, use kernels.Use, what string) (*weight, error) {
	w, ok := be.weights[h.ID]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s is not a weight of this backend (handle %d)", what, h.ID)
	case w.use != use:
		return nil, fmt.Errorf("%s is weight %s, loaded for use %d and not %d", what, w.name, w.use, use)
	}
	return w, nil
}

// vector resolves a Vector of n elements.
func (be *Backend) vector(h kernels.Weight, n int, what string) ([]float64, error) {
	w, err := be.weight(h, kernels.Vector, what)
	if err != nil {
		return nil, err
	}
	if w.rows*w.cols != n {
		return nil, fmt.Errorf("%s is weight %s of [%d, %d]; it must have %d elements", what, w.name, w.rows, w.cols, n)
	}
	return w.data, nil
}
