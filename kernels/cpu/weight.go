package cpu

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

const (
	panelRows = vec.PanelRows
	halfRows  = panelRows / 2 // unit in which outputs are shared out
)

// weight is a parameter as it lies in memory.
type weight struct {
	name       string
	use        kernels.Use
	rows, cols int
	paired     bool
	mem        block

	// Matrix: panels [panels][K/2][4][16][2].
	panels int
	packed unsafe.Pointer
	// int4 is the columns of a group of a Matrix of 4 bits, else 0. Its halves
	// of 32 outputs lie one after another at packed, and their scales and zero
	// points at meta.
	int4 int
	meta unsafe.Pointer
	// Vector, Table, Taps: rows of FP32; centered is 1 + x of a Vector.
	values, centered []float32
	// Taps, packed again for the heads of a Delta layer.
	heads *headTaps
	// Bank and Diagonal: their matrices, whose memory is theirs.
	bank []*weight
	// Rows: its parts in their files, and the bytes of the longest row of one.
	parts []kernels.Source
	line  int
}

// panel returns the start of panel p.
func (w *weight) panel(p int) unsafe.Pointer {
	return unsafe.Add(w.packed, p*panelRows*w.cols*2)
}

// halves returns the number of halves of panels, the last of which may be short.
func (w *weight) halves() int { return (w.rows + halfRows - 1) / halfRows }

// half4 returns the data and meta of half u of a Matrix of 4 bits.
func (w *weight) half4(u int) (data, meta *byte) {
	return (*byte)(unsafe.Add(w.packed, u*halfRows*w.cols/2)), (*byte)(unsafe.Add(w.meta, u*w.cols/w.int4*vec.Int4Meta))
}

// halfBytes is what a product reads of a half of 32 outputs.
func (w *weight) halfBytes() int {
	if w.int4 > 0 {
		return halfRows*w.cols/2 + w.cols/w.int4*vec.Int4Meta
	}
	return halfRows * w.cols * 2
}

// place returns where logical row r lies: its panel and its lane within it.
func (w *weight) place(r int) (panel, lane int) {
	if !w.paired {
		return r / panelRows, r % panelRows
	}
	half := w.rows / 2
	if r < half {
		return r / halfRows, r % halfRows
	}
	return (r - half) / halfRows, halfRows + (r-half)%halfRows
}

// Load takes a parameter in: a Matrix packed into panels, Rows left where they are
// to be read when they are asked for, the others widened to FP32. The file is read through small buffers, several panels at once. The
// error names the tensor and the part.
func (b *Backend) Load(t kernels.Tensor) (kernels.Weight, error) {
	if b.closed {
		return kernels.Weight{}, errClosed
	}
	if err := t.Check(); err != nil {
		return kernels.Weight{}, fmt.Errorf("cpu: %w", err)
	}
	w := &weight{name: t.Name, use: t.Use, paired: t.Paired}
	w.rows, w.cols = t.Shape()
	b.mem.open()
	defer b.mem.shut()
	var err error
	switch t.Use {
	case kernels.Matrix:
		err = b.loadMatrix(w, t)
	case kernels.Bank, kernels.Diagonal:
		err = b.loadBank(w, t)
	case kernels.Rows:
		b.loadRows(w, t)
	default:
		err = b.loadValues(w, t)
	}
	if err != nil {
		if w.mem.chunk != nil {
			_ = b.mem.free(w.mem) // the load's error is the one to report
		}
		return kernels.Weight{}, err
	}
	b.weights = append(b.weights, w)
	return kernels.Weight{ID: uint32(len(b.weights))}, nil
}

// measure sets the number of panels.
func (w *weight) measure() error {
	if w.cols%2 != 0 {
		return fmt.Errorf("cpu: load %s: %d columns; a matrix must have an even number", w.name, w.cols)
	}
	w.panels = (w.rows + panelRows - 1) / panelRows
	if w.paired {
		w.panels = (w.rows/2 + halfRows - 1) / halfRows
	}
	return nil
}

func (b *Backend) loadMatrix(w *weight, t kernels.Tensor) (err error) {
	if err := w.measure(); err != nil {
		return err
	}
	if t.Int4() {
		w.int4 = t.Parts[0].Int4.Group
	}
	filled, err := b.reserve(w, 2*w.panels*w.halfBytes())
	if err != nil {
		return fmt.Errorf("load %s: %w", t.Name, err)
	}
	w.packed = w.mem.ptr()
	if w.int4 > 0 {
		w.meta = unsafe.Add(w.packed, 2*w.panels*halfRows*w.cols/2)
	}
	if filled {
		return nil
	}
	return packPanels(w, t, len(b.pool.workers), b.set)
}

// loadBank packs the matrices of a bank one after another.
func (b *Backend) loadBank(w *weight, t kernels.Tensor) (err error) {
	experts := t.Experts()
	for _, e := range experts {
		x := &weight{name: t.Name, use: kernels.Matrix, paired: t.Paired}
		x.rows, x.cols = e.Shape()
		if err := x.measure(); err != nil {
			return err
		}
		w.bank = append(w.bank, x)
	}
	size := 2 * w.bank[0].panels * w.bank[0].halfBytes()
	filled, err := b.reserve(w, size*len(experts))
	if err != nil {
		return fmt.Errorf("load %s: %w", t.Name, err)
	}
	for i, x := range w.bank {
		x.packed = unsafe.Add(w.mem.ptr(), i*size)
		if filled {
			continue
		}
		if err := packPanels(x, experts[i], len(b.pool.workers), b.set); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) loadValues(w *weight, t kernels.Tensor) (err error) {
	n := w.rows * w.cols
	copies := 1
	if t.Use == kernels.Vector {
		copies = 2
	}
	filled, err := b.reserve(w, copies*roundUp(4*n, lineBytes))
	if err != nil {
		return fmt.Errorf("load %s: %w", t.Name, err)
	}
	w.values = unsafe.Slice((*float32)(w.mem.ptr()), n)
	if t.Use == kernels.Vector {
		w.centered = unsafe.Slice((*float32)(unsafe.Add(w.mem.ptr(), roundUp(4*n, lineBytes))), n)
	}
	if filled {
		return nil
	}
	if err := readValues(w.values, t); err != nil {
		return err
	}
	if t.Use == kernels.Vector {
		for i, v := range w.values {
			w.centered[i] = 1 + v
		}
	}
	return nil
}

// weightOf resolves a handle for an operation.
func (q *queue) weightOf(op string, h kernels.Weight, use kernels.Use) *weight {
	if h.ID == 0 || int(h.ID) > len(q.b.weights) {
		q.bad("%s: there is no weight %d", op, h.ID)
		return nil
	}
	w := q.b.weights[h.ID-1]
	if w.use != use {
		q.bad("%s: weight %s was loaded for another use", op, w.name)
		return nil
	}
	return w
}

// row returns row r of a Table.
func (w *weight) row(r int) []float32 { return w.values[r*w.cols:][:w.cols] }

// ropeOf returns a table of rotary channels; none where an operation has none. It
// reports false when the table is not as wide as that.
func (q *queue) ropeOf(op string, h kernels.Weight, rotary int) (*weight, bool) {
	if h.None() || rotary == 0 {
		return nil, true
	}
	w := q.weightOf(op, h, kernels.Table)
	if w == nil {
		return nil, false
	}
	if w.cols != rotary {
		q.bad("%s: rope table %s has %d columns, want %d", op, w.name, w.cols, rotary)
		return nil, false
	}
	return w, true
}
