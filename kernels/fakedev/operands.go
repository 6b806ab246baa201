package fakedev

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// operands translates handles of the device into handles of the wrapped backend
// and keeps the first error.
type operands struct {
	be   *Backend
	err  error
	used []uint32
}

// alive reports whether a handle may be used.
func (be *Backend) alive(id uint32) bool {
	_, buf := be.bufs[id]
	_, weight := be.weights[id]
	_, caches := be.caches[id]
	return buf || weight || caches
}

func (o *operands) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf(format, args...)
	}
}

// buf translates a view; what names the operand in errors.
func (o *operands) buf(b kernels.Buf, what string) kernels.Buf {
	base, ok := o.be.bufs[b.ID]
	switch {
	case !ok:
		o.fail("%s is not a live buffer of this device (handle %d)", what, b.ID)
	case b.Kind != base.Kind:
		o.fail("%s is a %s view of a %s buffer", what, b.Kind, base.Kind)
	case b.Row < 0 || b.Rows < 0 || b.Row+b.Rows > base.Rows || b.Col < 0 || b.Cols < 0 || b.Col+b.Cols > base.Cols:
		o.fail("%s views rows %d+%d, columns %d+%d of a buffer of [%d, %d]", what, b.Row, b.Rows, b.Col, b.Cols, base.Rows, base.Cols)
	}
	o.used = append(o.used, b.ID)
	b.ID = base.ID
	b.Row += base.Row
	b.Col += base.Col
	return b
}

// optional translates a view that may be none.
func (o *operands) optional(b kernels.Buf, what string) kernels.Buf {
	if b.None() {
		return b
	}
	return o.buf(b, what)
}

// weight translates a parameter; none stays none.
func (o *operands) weight(w kernels.Weight, what string) kernels.Weight {
	if w.None() {
		return w
	}
	inner, ok := o.be.weights[w.ID]
	if !ok {
		o.fail("%s is not a weight of this device (handle %d)", what, w.ID)
	}
	o.used = append(o.used, w.ID)
	return inner
}

func (o *operands) norm(n kernels.Norm, what string) kernels.Norm {
	n.W, n.Bias = o.weight(n.W, what), o.weight(n.Bias, what)
	return n
}

// find translates caches by handle number.
func (o *operands) find(id uint32) kernels.Caches {
	c, ok := o.be.caches[id]
	if !ok {
		o.fail("caches %d are not of this device, or closed", id)
		return nil
	}
	o.used = append(o.used, id)
	return c.inner
}

// layer translates a layer handle.
func (o *operands) layer(l kernels.Layer) kernels.Layer {
	c := o.find(l.Caches)
	if c == nil {
		return kernels.Layer{}
	}
	if n := len(c.Spec().Layers); l.Index < 0 || int(l.Index) >= n {
		o.fail("layer %d of %d", l.Index, n)
		return kernels.Layer{}
	}
	return c.Layer(int(l.Index))
}

// batch translates the tables of a batch into a new one.
func (o *operands) batch(b *kernels.Batch, what string) *kernels.Batch {
	t := *b
	for _, c := range []struct {
		buf  *kernels.Buf
		name string
	}{
		{&t.Seq, "Seq"}, {&t.Start, "Start"}, {&t.Len, "Len"}, {&t.RowOff, "RowOff"},
		{&t.Token, "Token"}, {&t.Pos, "Pos"}, {&t.Parent, "Parent"}, {&t.Span, "Span"},
	} {
		*c.buf = o.buf(*c.buf, what+"."+c.name)
	}
	t.Logit = o.optional(t.Logit, what+".Logit")
	return &t
}
