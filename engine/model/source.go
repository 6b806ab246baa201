package model

import (
	"fmt"
	"strings"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/tokenizer"
	"exacta.dev/exacta/kernels"
)

// Source gives a model its configuration and its tensors by normalised name.
type Source interface {
	// Name stands for the source in errors and reports.
	Name() string
	// Config returns the checked configuration.
	Config() checkpoint.Config
	// Has reports whether a tensor is there.
	Has(name string) bool
	// Matrix returns the tensor of that name, which must have the shape
	// [rows, cols]; a missing tensor or another shape is an error that names
	// the tensor, and so is, as the tensor is read, a NaN or infinity in it.
	Matrix(name string, rows, cols int) (kernels.Source, error)
	// Ints returns an integer tensor of n elements (I64 or I32); its error is
	// errors.ErrUnsupported where the source makes up tensors, but none like it.
	Ints(name string, n int) ([]int64, error)
	// Alike numbers the tokens by what they say, n numbers in all, as
	// tokenizer.Tokenizer.Alike does.
	Alike() (ids []int32, n int, err error)
	// Done is called when a tensor that Matrix returned has been taken in.
	Done(name string) error
}

// Checkpoint is the Source of an opened checkpoint.
type Checkpoint struct{ *checkpoint.Checkpoint }

var _ Source = Checkpoint{}

// Matrix implements Source. Dimensions of size one are ignored when shapes are
// compared, so that a vector [N] and a convolution [C, 1, K] are found as
// [1, N] and [C, K], and a stack of matrices [E, N, K] as [E*N, K].
func (c Checkpoint) Matrix(name string, rows, cols int) (kernels.Source, error) {
	t, err := c.Tensor(name)
	if err != nil {
		return kernels.Source{}, err
	}
	return sourceOf(c.Name(), t, name, rows, cols)
}

// Ints implements Source.
func (c Checkpoint) Ints(name string, n int) ([]int64, error) {
	t, err := c.Tensor(name)
	if err != nil {
		return nil, err
	}
	ids, err := t.Ints(n)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s %w", c.Name(), name, err)
	}
	return ids, nil
}

// Alike implements Source.
func (c Checkpoint) Alike() ([]int32, int, error) {
	text, err := c.ReadFile("tokenizer.json")
	if err != nil {
		return nil, 0, err
	}
	t, err := tokenizer.Load(text)
	if err != nil {
		return nil, 0, fmt.Errorf("tokenizer.json: %w", err)
	}
	ids, n := t.Alike()
	return ids, n, nil
}

// Done implements Source: the tensor's pages may leave memory.
func (c Checkpoint) Done(name string) error {
	t, err := c.Tensor(name)
	if err != nil {
		return err
	}
	return t.Discard()
}

// sourceOf checks a tensor and makes it a part to load; from is where it is.
func sourceOf(from string, t checkpoint.Tensor, name string, rows, cols int) (kernels.Source, error) {
	if !sameShape(t.Shape, rows, cols) {
		return kernels.Source{}, fmt.Errorf("%s: tensor %s has shape %v; config.json asks for %v", from, name, t.Shape, dims(rows, cols))
	}
	dt, err := dtypeOf(t.DType)
	if err != nil {
		return kernels.Source{}, fmt.Errorf("%s: tensor %s: %w", from, name, err)
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: dt, Data: checkpoint.Finite{Tensor: t}}, nil
}

func dtypeOf(d checkpoint.DType) (kernels.DType, error) {
	switch d {
	case checkpoint.BF16:
		return kernels.DTypeBF16, nil
	case checkpoint.F16:
		return kernels.DTypeF16, nil
	case checkpoint.F32:
		return kernels.DTypeF32, nil
	}
	return 0, fmt.Errorf("element type %v is not supported; weights must be BF16, F16 or F32", d)
}

func sameShape(shape []int, rows, cols int) bool {
	var have []int
	for _, d := range shape {
		if d != 1 {
			have = append(have, d)
		}
	}
	if len(have) == 3 { // a stack of matrices
		have = []int{have[0] * have[1], have[2]}
	}
	want := dims(rows, cols)
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if have[i] != want[i] {
			return false
		}
	}
	return true
}

func dims(rows, cols int) []int {
	var d []int
	for _, n := range []int{rows, cols} {
		if n != 1 {
			d = append(d, n)
		}
	}
	return d
}

// loader takes tensors in and remembers the first error.
type loader struct {
	be   kernels.Backend
	src  Source
	err  error
	left int64 // bytes of tables that stay in their files
}

// load stacks the named tensors, each [rows[i], cols], into one parameter.
func (l *loader) load(use kernels.Use, paired bool, cols int, parts ...part) kernels.Weight {
	if l.err != nil {
		return kernels.Weight{}
	}
	t := kernels.Tensor{Use: use, Paired: paired}
	names := make([]string, len(parts))
	for i, p := range parts {
		src, err := l.src.Matrix(p.name, p.rows, cols)
		if err != nil {
			l.err = err
			return kernels.Weight{}
		}
		t.Parts = append(t.Parts, src)
		names[i] = p.name
	}
	t.Name = strings.Join(names, "+")
	if use == kernels.Bank {
		t.Name = names[0]
		if len(names) > 1 {
			t.Name += "+..."
		}
	}
	return l.take(t, names...)
}

// take gives a tensor made of the named ones to the backend.
func (l *loader) take(t kernels.Tensor, names ...string) kernels.Weight {
	if t.Use == kernels.Rows {
		for _, p := range t.Parts {
			l.left += int64(p.Rows) * int64(p.Cols) * int64(p.DType.Size())
		}
	}
	w, err := l.be.Load(t)
	for _, n := range names {
		if e := l.src.Done(n); err == nil {
			err = e
		}
	}
	l.err = err
	return w
}

type part struct {
	name string
	rows int
}

// matrix loads one [rows, cols] weight.
func (l *loader) matrix(name string, rows, cols int) kernels.Weight {
	return l.load(kernels.Matrix, false, cols, part{name, rows})
}

// mlpOf loads an MLP of a width.
func (l *loader) mlpOf(prefix string, width int) (gateUp, down kernels.Weight) {
	return l.mlpUp(prefix, width), l.matrix(prefix+"down_proj.weight", l.src.Config().HiddenSize, width)
}

// mlpUp loads its first half.
func (l *loader) mlpUp(prefix string, width int) kernels.Weight {
	return l.load(kernels.Matrix, true, l.src.Config().HiddenSize, part{prefix + "gate_proj.weight", width}, part{prefix + "up_proj.weight", width})
}

// flat loads a matrix [rows, cols] as one vector.
func (l *loader) flat(name string, rows, cols int) kernels.Weight {
	src := l.source(name, rows, cols)
	if l.err != nil {
		return kernels.Weight{}
	}
	src.Rows, src.Cols = 1, rows*cols
	return l.take(kernels.Tensor{Name: name, Use: kernels.Vector, Parts: []kernels.Source{src}}, name)
}

// vector loads n values.
func (l *loader) vector(name string, n int) kernels.Weight {
	return l.load(kernels.Vector, false, n, part{name, 1})
}
