package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// soloElems is the number of elements up to which copying and the like is left
// to one worker.
const soloElems = 8192

// rowOp is an operation that handles one row at a time.
type rowOp struct {
	dst, src, idx view
	w             *weight
	norm          norm
}

// norm is a resolved kernels.Norm; the zero norm means none.
type norm struct {
	w     []float32
	bias  []float32 // nil is none; else a layer norm
	eps   float32
	group int
}

// normOf resolves n for rows of cols columns.
func (q *queue) normOf(op string, n kernels.Norm, cols int) norm {
	if n.W.None() {
		return norm{}
	}
	w := q.weightOf(op, n.W, kernels.Vector)
	if w == nil {
		return norm{}
	}
	group := cols
	if n.Group > 0 {
		group = n.Group
	}
	if cols%group != 0 || len(w.values) != group {
		q.bad("%s: norm %s has %d elements, want %d for rows of %d", op, w.name, len(w.values), group, cols)
		return norm{}
	}
	v := w.values
	if n.Centered {
		v = w.centered
	}
	out := norm{w: v, eps: n.Eps, group: group}
	if n.Bias.None() {
		return out
	}
	bias := q.weightOf(op, n.Bias, kernels.Vector)
	switch {
	case bias == nil:
	case op != "norm" || group != cols || n.Centered || len(bias.values) != cols:
		q.bad("%s: norm %s has bias %s of %d elements; only Norm has one, of whole rows of %d that are not centred", op, w.name, bias.name, len(bias.values), cols)
	default:
		out.bias = bias.values
	}
	return out
}

// normEach is normOf for a norm whose weight may have an element for every column.
func (q *queue) normEach(op string, n kernels.Norm, cols int) norm {
	if n.Group > 0 && cols%n.Group == 0 && n.Bias.None() && !n.W.None() {
		w := q.weightOf(op, n.W, kernels.Vector)
		if w == nil {
			return norm{}
		}
		if len(w.values) == cols {
			v := w.values
			if n.Centered {
				v = w.centered
			}
			return norm{w: v, eps: n.Eps, group: n.Group}
		}
	}
	return q.normOf(op, n, cols)
}

// of returns the weight of the group that begins at column g.
func (n *norm) of(g int) []float32 {
	g %= len(n.w)
	return n.w[g : g+n.group]
}

// rsqrtMean returns 1 / sqrt(sum/n + eps).
func rsqrtMean(sum float32, n int, eps float32) float32 {
	mean := sum / float32(n)
	return 1 / float32(math.Sqrt(float64(mean+eps)))
}

// apply normalises a BF16 row.
func (n *norm) apply(w *worker, dst, x []uint16) {
	for g := 0; g < len(x); g += n.group {
		in := x[g : g+n.group]
		s := rsqrtMean(w.set.SumSquaresBF16(in), n.group, n.eps)
		w.set.ScaleWeightBF16(dst[g:g+n.group], in, s, n.of(g))
	}
}

// Embed gathers rows of a Matrix weight.
func (q *queue) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	const op = "embed"
	if q.off() {
		return
	}
	w := q.weightOf(op, table, kernels.Matrix)
	o := rowOp{dst: q.typed(op, "dst", dst, kernels.BF16), w: w}
	o.idx = q.column(op, "ids", ids, o.dst.rows)
	if q.off() {
		return
	}
	if o.dst.cols != w.cols {
		q.bad("%s: dst has %d columns, %s has %d", op, o.dst.cols, w.name, w.cols)
		return
	}
	if w.int4 > 0 {
		q.bad("%s: %s is of 4 bits; embeddings are gathered from BF16 matrices", op, w.name)
		return
	}
	q.pushRows(opEmbed, o, o.dst.rows < 2)
}

func (q *queue) pushRows(k opKind, o rowOp, solo bool) {
	q.list.rows = append(q.list.rows, o)
	q.push(k, solo, len(q.list.rows)-1)
}

func (w *worker) embed(o *rowOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		id := o.idx.at(r)
		if id < 0 || id >= o.w.rows {
			w.fail("cpu: embed: row %d has id %d, %s has rows 0 to %d", r, id, o.w.name, o.w.rows-1)
			return
		}
		panel, lane := o.w.place(id)
		src := unsafe.Slice((*uint32)(o.w.panel(panel)), panelRows*o.w.cols/2)[lane:]
		dst := unsafe.Slice((*uint16)(o.dst.row(r)), o.w.cols)
		for i := 0; i < len(dst); i += 2 {
			pair := src[i*halfRows]
			dst[i], dst[i+1] = uint16(pair), uint16(pair>>16)
		}
	}
}

// part is share for an operation that may run solo.
func (w *worker) part(n int) (from, to int) {
	if w.solo {
		return 0, n
	}
	return w.share(n)
}

// Gather copies rows of src by index.
func (q *queue) Gather(dst, src, rows kernels.Buf) { q.indexed("gather", opGather, dst, src, rows) }

// Scatter copies rows to indices of dst.
func (q *queue) Scatter(dst, src, rows kernels.Buf) { q.indexed("scatter", opScatter, dst, src, rows) }

func (q *queue) indexed(op string, k opKind, dst, src, rows kernels.Buf) {
	if q.off() {
		return
	}
	o := rowOp{dst: q.view(op, "dst", dst), src: q.view(op, "src", src)}
	n := o.dst.rows
	if k == opScatter {
		n = o.src.rows
	}
	o.idx = q.column(op, "rows", rows, n)
	if q.off() {
		return
	}
	if o.dst.kind != o.src.kind || o.dst.cols != o.src.cols {
		q.bad("%s: dst is %s with %d columns, src %s with %d", op, o.dst.kind, o.dst.cols, o.src.kind, o.src.cols)
		return
	}
	q.pushRows(k, o, n*o.dst.cols <= soloElems)
}

func (w *worker) gather(o *rowOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		i := o.idx.at(r)
		switch {
		case i >= o.src.rows:
			w.fail("cpu: gather: index %d of row %d is beyond the %d rows of src", i, r, o.src.rows)
			return
		case i < 0:
			clear(o.dst.bytes(r))
		default:
			copy(o.dst.bytes(r), o.src.bytes(i))
		}
	}
}

// scatter splits columns, not rows: two rows may go to one place, and the later
// must win.
func (w *worker) scatter(o *rowOp) {
	lo, hi := w.part(o.src.cols)
	size := o.src.kind.Size()
	for r := range o.src.rows {
		i := o.idx.at(r)
		if i >= o.dst.rows {
			w.fail("cpu: scatter: index %d of row %d is beyond the %d rows of dst", i, r, o.dst.rows)
			return
		}
		if i >= 0 {
			copy(o.dst.bytes(i)[lo*size:hi*size], o.src.bytes(r)[lo*size:hi*size])
		}
	}
}

// Copy copies a view.
func (q *queue) Copy(dst, src kernels.Buf) {
	const op = "copy"
	if q.off() {
		return
	}
	o := rowOp{dst: q.view(op, "dst", dst), src: q.view(op, "src", src)}
	if q.off() {
		return
	}
	if o.dst.kind != o.src.kind || o.dst.cols != o.src.cols || o.dst.rows != o.src.rows {
		q.bad("%s: dst is %s [%d, %d], src %s [%d, %d]", op, o.dst.kind, o.dst.rows, o.dst.cols, o.src.kind, o.src.rows, o.src.cols)
		return
	}
	q.pushRows(opCopy, o, o.dst.rows*o.dst.cols <= soloElems)
}

func (w *worker) copyRows(o *rowOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		copy(o.dst.bytes(r), o.src.bytes(r))
	}
}

// Norm normalises each row of x into dst.
func (q *queue) Norm(dst, x kernels.Buf, n kernels.Norm) {
	const op = "norm"
	if q.off() {
		return
	}
	o := rowOp{dst: q.typed(op, "dst", dst, kernels.BF16), src: q.view(op, "x", x)}
	if q.off() {
		return
	}
	o.norm = q.normEach(op, n, o.dst.cols)
	if q.off() {
		return
	}
	if o.src.kind == kernels.I32 || o.dst.cols != o.src.cols || o.dst.rows != o.src.rows {
		q.bad("%s: dst is [%d, %d], x %s [%d, %d]", op, o.dst.rows, o.dst.cols, o.src.kind, o.src.rows, o.src.cols)
		return
	}
	q.require(needs{worker: scratchBytes([]int{o.dst.cols}, nil)})
	q.pushRows(opNorm, o, o.dst.rows*o.dst.cols <= soloElems)
}

func (w *worker) norm(o *rowOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		dst := o.dst.u16(r)
		switch {
		case o.norm.bias != nil:
			w.normLayer(dst, o.src, r, &o.norm)
		case o.src.kind == kernels.BF16 && o.norm.w != nil:
			o.norm.apply(w, dst, o.src.u16(r))
		case o.src.kind == kernels.BF16:
			copy(dst, o.src.u16(r))
		default:
			w.normWide(dst, o.src.f32(r), &o.norm)
		}
	}
}

// normLayer is a layer norm of row r; its sums are chains over the columns.
func (w *worker) normLayer(dst []uint16, src view, r int, n *norm) {
	w.begin()
	x := w.f32(src.cols)
	if src.kind == kernels.BF16 {
		w.set.FromBF16(x, src.u16(r))
	} else {
		copy(x, src.f32(r))
	}
	var sum, squares float32
	for _, v := range x {
		sum += v
	}
	mean := sum / float32(len(x))
	for i, v := range x {
		x[i] = v - mean
		squares += float32(x[i] * x[i])
	}
	w.set.ScaleWeight(x, x, rsqrtMean(squares, len(x), n.eps), n.w)
	w.set.Add(x, n.bias)
	w.set.ToBF16(dst, x)
}

// normWide normalises an FP32 row.
func (w *worker) normWide(dst []uint16, x []float32, n *norm) {
	if n.w == nil {
		w.set.ToBF16(dst, x)
		return
	}
	w.begin()
	t := w.f32(len(x))
	for g := 0; g < len(x); g += n.group {
		in := x[g : g+n.group]
		s := rsqrtMean(w.set.SumSquares(in), n.group, n.eps)
		w.set.ScaleWeight(t[g:g+n.group], in, s, n.of(g))
	}
	w.set.ToBF16(dst, t)
}
