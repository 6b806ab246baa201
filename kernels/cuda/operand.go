//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// buffer is one allocation.
type buffer struct {
	block
	kind       kernels.Kind
	rows, cols int
}

// operand is a resolved view.
type operand struct {
	p          driver.Ptr
	kind       kernels.Kind
	ld         int // elements from row to row
	rows, cols int
}

func (o operand) size() int { return o.kind.Size() }

// pitch is the bytes from row to row.
func (o operand) pitch() int64 { return int64(o.ld) * int64(o.size()) }

// row returns the address of row r.
func (o operand) row(r int64) driver.Ptr { return o.p + driver.Ptr(r*o.pitch()) }

// from is the operand without its first rows.
func (o operand) from(row int) operand {
	o.p = o.row(int64(row))
	o.rows -= row
	return o
}

// view returns the operand as kernels see it.
func (o operand) view() view { return view{p: o.p, ld: int32(o.ld), rows: int32(o.rows)} }

// none stands for operands that could not be resolved.
var none = operand{kind: kernels.BF16}

// operand resolves a handle; what names it in errors.
func (q *queue) operand(b kernels.Buf, what string) operand {
	buf, ok := q.be.bufs[b.ID]
	switch {
	case !ok:
		q.fail("%s is not a live buffer of this backend (handle %d)", what, b.ID)
		return none
	case b.Kind != buf.kind:
		q.fail("%s is a %s view of a %s buffer", what, b.Kind, buf.kind)
		return none
	case b.Row < 0 || b.Rows < 0 || int(b.Row)+int(b.Rows) > buf.rows,
		b.Col < 0 || b.Cols < 0 || int(b.Col)+int(b.Cols) > buf.cols:
		q.fail("%s views rows %d+%d, columns %d+%d of a buffer of [%d, %d]",
			what, b.Row, b.Rows, b.Col, b.Cols, buf.rows, buf.cols)
		return none
	}
	if q.recording != nil {
		q.recording.bufs[b.ID] = true
	}
	at := (int64(b.Row)*int64(buf.cols) + int64(b.Col)) * int64(b.Kind.Size())
	return operand{p: buf.at(at), kind: b.Kind, ld: buf.cols, rows: int(b.Rows), cols: int(b.Cols)}
}

// of resolves an operand of a fixed kind with at least rows rows of exactly cols
// columns; a negative cols means any width.
func (q *queue) of(b kernels.Buf, what string, k kernels.Kind, rows, cols int) operand {
	o := q.operand(b, what)
	if q.bad == nil && o.kind != k {
		q.fail("%s is %s; it must be %s", what, o.kind, k)
	}
	q.shape(o, what, rows, cols)
	return o
}

// float resolves an operand of BF16 or F32.
func (q *queue) float(b kernels.Buf, what string, rows, cols int) operand {
	o := q.operand(b, what)
	if q.bad == nil && o.kind == kernels.I32 {
		q.fail("%s is i32; it must be bf16 or f32", what)
	}
	q.shape(o, what, rows, cols)
	return o
}

func (q *queue) shape(o operand, what string, rows, cols int) {
	switch {
	case q.bad != nil:
	case o.rows < rows:
		q.fail("%s has %d rows; it must have %d", what, o.rows, rows)
	case cols >= 0 && o.cols != cols:
		q.fail("%s has %d columns; it must have %d", what, o.cols, cols)
	}
}

// table resolves an I32 column of at least rows rows.
func (q *queue) table(b kernels.Buf, what string, rows int) view {
	return q.of(b, what, kernels.I32, rows, 1).view()
}

// batch resolves the tables of a batch.
func (q *queue) batch(b *kernels.Batch) batchArgs {
	if b.Spans <= 0 || b.Rows <= 0 || b.LogitRows < 0 || b.MaxLen <= 0 {
		q.fail("batch has a bucket of %d spans, %d rows (at most %d a span), %d logit rows", b.Spans, b.Rows, b.MaxLen, b.LogitRows)
		return batchArgs{}
	}
	a := batchArgs{
		seq: q.table(b.Seq, "batch.Seq", b.Spans), start: q.table(b.Start, "batch.Start", b.Spans),
		length: q.table(b.Len, "batch.Len", b.Spans), off: q.table(b.RowOff, "batch.RowOff", b.Spans),
		token: q.table(b.Token, "batch.Token", b.Rows), pos: q.table(b.Pos, "batch.Pos", b.Rows),
		parent: q.table(b.Parent, "batch.Parent", b.Rows), span: q.table(b.Span, "batch.Span", b.Rows),
		spans: int32(b.Spans), rows: int32(b.Rows), logits: int32(b.LogitRows), maxRows: int32(b.MaxLen),
	}
	if b.LogitRows > 0 {
		a.logit = q.table(b.Logit, "batch.Logit", b.LogitRows)
	}
	return a
}

// noWeight stands for weights that could not be resolved.
var noWeight = &weight{rows: 1, cols: 1, experts: 1}

// weight resolves a parameter of a use.
func (q *queue) weight(h kernels.Weight, use kernels.Use, what string) *weight {
	w, ok := q.be.weights[h.ID]
	switch {
	case !ok:
		q.fail("%s is not a weight of this backend (handle %d)", what, h.ID)
		return noWeight
	case w.use != use:
		q.fail("%s is weight %s, loaded for use %d and not %d", what, w.name, w.use, use)
		return noWeight
	}
	return w
}

// vector resolves a Vector of n elements.
func (q *queue) vector(h kernels.Weight, n int, what string) driver.Ptr {
	w := q.weight(h, kernels.Vector, what)
	if q.bad == nil && w.rows*w.cols != n {
		q.fail("%s is weight %s of [%d, %d]; it must have %d elements", what, w.name, w.rows, w.cols, n)
	}
	return w.ptr
}

// norm is a resolved kernels.Norm; w 0 is no norm.
type norm struct {
	w        driver.Ptr
	bias     driver.Ptr // 0 is none; else a layer norm
	eps      float32
	group    int32
	centered int32
	each     int32 // w has an element for every column
}

// norm resolves a norm over rows of cols columns.
func (q *queue) norm(n kernels.Norm, cols int, what string) norm {
	group := n.Group
	if group == 0 {
		group = cols
	}
	if n.W.None() {
		return norm{group: int32(cols)}
	}
	if group < 0 || group == 0 || cols%group != 0 {
		q.fail("%s has groups of %d for %d columns", what, n.Group, cols)
		return norm{group: 1}
	}
	r := norm{w: q.vector(n.W, group, what), eps: n.Eps, group: int32(group), centered: flag(n.Centered)}
	switch {
	case n.Bias.None():
	case q.op != opNorm || group != cols || n.Centered:
		q.fail("%s has a bias; only Norm has one, of whole rows that are not centred", what)
	default:
		r.bias = q.vector(n.Bias, group, what)
	}
	return r
}

// normEach is norm for one whose weight may have an element for every column.
func (q *queue) normEach(n kernels.Norm, cols int, what string) norm {
	if n.Group > 0 && cols%n.Group == 0 && n.Bias.None() && !n.W.None() {
		if w := q.weight(n.W, kernels.Vector, what); q.bad == nil && w.rows*w.cols == cols {
			return norm{w: w.ptr, eps: n.Eps, group: int32(n.Group), centered: flag(n.Centered), each: 1}
		}
	}
	return q.norm(n, cols, what)
}
