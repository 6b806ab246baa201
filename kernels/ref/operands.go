package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// operands resolves the operands of one operation and keeps the first error.
type operands struct {
	be  *Backend
	err error
}

func (o *operands) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// view resolves an operand.
func (o *operands) view(b kernels.Buf, what string) view {
	v, err := o.be.view(b, what)
	if err != nil && o.err == nil {
		o.err = err
	}
	return v
}

// kind resolves an operand of a fixed kind, with at least rows rows of exactly
// cols columns. A negative cols means any width.
func (o *operands) kind(b kernels.Buf, what string, k kernels.Kind, rows, cols int) view {
	v := o.view(b, what)
	if o.err != nil {
		return v
	}
	if v.kind != k {
		o.fail("%s is %s; it must be %s", what, v.kind, k)
	}
	o.shape(v, what, rows, cols)
	return v
}

// shape checks a resolved operand.
func (o *operands) shape(v view, what string, rows, cols int) {
	switch {
	case o.err != nil:
	case v.rows < rows:
		o.fail("%s has %d rows; it must have %d", what, v.rows, rows)
	case cols >= 0 && v.cols != cols:
		o.fail("%s has %d columns; it must have %d", what, v.cols, cols)
	}
}

// table resolves an I32 column of at least rows rows.
func (o *operands) table(b kernels.Buf, what string, rows int) view {
	return o.kind(b, what, kernels.I32, rows, 1)
}

// weight resolves a parameter of a use, vector a Vector of n elements.
func (o *operands) weight(h kernels.Weight, use kernels.Use, what string) *weight {
	w, err := o.be.weight(h, use, what)
	if err != nil && o.err == nil {
		o.err = err
	}
	return w
}

func (o *operands) vector(h kernels.Weight, n int, what string) []float64 {
	x, err := o.be.vector(h, n, what)
	if err != nil && o.err == nil {
		o.err = err
	}
	return x
}

// rope is a table of rotary channels, nil where an operation has none.
func (o *operands) rope(h kernels.Weight, rotary int) *weight {
	if h.None() {
		return nil
	}
	w := o.weight(h, kernels.Table, "rope")
	if o.err == nil && w.cols != rotary {
		o.fail("%d rotary channels with a table of %d columns", rotary, w.cols)
	}
	return w
}
