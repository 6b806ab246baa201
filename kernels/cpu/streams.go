package cpu

import (
	"math"

	"exacta.dev/exacta/kernels"
)

// streamKind says which operation a streamOp is.
type streamKind uint8

const (
	streamActivate streamKind = iota
	streamCollapse
	streamSpread
	streamGate
)

// streamOp is an operation on residual streams, row by row. What is weights to
// Collapse is b, and to Spread inject is b and mix is c.
type streamOp struct {
	kind    streamKind
	dst     view
	a, b, c view
	n, h    int // streams and their width
	f       kernels.Activation
	scale   float32
}

// pushStreams records an operation whose rows take f32s numbers of scratch.
func (q *queue) pushStreams(o streamOp, f32s ...int) {
	if q.off() {
		return
	}
	q.require(needs{worker: scratchBytes(f32s, nil)})
	q.list.streams = append(q.list.streams, o)
	q.push(opStreams, o.dst.rows*o.dst.cols <= soloElems/4, len(q.list.streams)-1)
}

func (w *worker) streams(o *streamOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		w.begin()
		switch o.kind {
		case streamActivate:
			w.activateRow(o, r)
		case streamCollapse:
			w.collapse(o, r)
		case streamSpread:
			w.spread(o, r)
		case streamGate:
			w.gate(o, r)
		}
	}
}

// real resolves an operand of BF16 or F32.
func (q *queue) real(op, name string, b kernels.Buf) view {
	v := q.view(op, name, b)
	if !v.none() && v.kind == kernels.I32 {
		q.bad("%s: %s is i32, want bf16 or f32", op, name)
	}
	return v
}

// put writes a row of FP32 to a row of BF16 or F32.
func (w *worker) put(dst view, r int, x []float32) {
	if dst.kind == kernels.BF16 {
		w.set.ToBF16(dst.u16(r), x)
		return
	}
	copy(dst.f32(r), x)
}

// Activate applies a function to each element.
func (q *queue) Activate(dst, x kernels.Buf, a kernels.Activation) {
	const op = "activate"
	if q.off() {
		return
	}
	if err := a.Check(); err != nil {
		q.bad("activate: %v", err)
		return
	}
	o := streamOp{kind: streamActivate, dst: q.real(op, "dst", dst), f: a}
	o.a = q.shaped(op, "x", x, kernels.F32, o.dst.rows, o.dst.cols)
	q.pushStreams(o, o.dst.cols)
}

func (w *worker) activateRow(o *streamOp, r int) {
	t := w.f32(o.dst.cols)
	w.set.Scale(t, o.a.f32(r), o.f.In)
	switch o.f.Act {
	case kernels.SiLU:
		w.set.SiLU(t, t)
	case kernels.Sigmoid:
		w.set.Sigmoid(t, t)
	}
	w.set.Scale(t, t, o.f.Out)
	w.put(o.dst, r, t)
}

// streamsOf derives the number of streams in cols columns of width h.
func (q *queue) streamsOf(op string, cols, h int) int {
	if !q.off() && (h == 0 || cols == 0 || cols%h != 0) {
		q.bad("%s: x has %d columns; it must have streams of %d", op, cols, h)
	}
	if q.off() {
		return 0
	}
	return cols / h
}

// Collapse brings the streams of a row together.
func (q *queue) Collapse(dst, x, weights kernels.Buf, scale float32) {
	const op = "collapse"
	if q.off() {
		return
	}
	o := streamOp{kind: streamCollapse, dst: q.typed(op, "dst", dst, kernels.BF16), scale: scale}
	o.a = q.shaped(op, "x", x, kernels.BF16, o.dst.rows, int(x.Cols))
	o.h = o.dst.cols
	o.n = q.streamsOf(op, o.a.cols, o.h)
	if !weights.None() && !q.off() {
		cols := int(weights.Cols)
		if cols != o.n && cols != o.a.cols {
			q.bad("collapse: weights have %d columns, want %d or %d", cols, o.n, o.a.cols)
		}
		o.b = q.shaped(op, "weights", weights, kernels.F32, o.dst.rows, cols)
	}
	q.pushStreams(o, o.h, o.h)
}

func (w *worker) collapse(o *streamOp, r int) {
	sum, t := w.f32(o.h), w.f32(o.h)
	clear(sum)
	x := o.a.u16(r)
	for s := range o.n {
		w.set.FromBF16(t, x[s*o.h:][:o.h])
		switch {
		case o.b.none():
			w.set.Add(sum, t)
		case o.b.cols == o.n:
			w.set.Axpy(sum, t, o.b.f32(r)[s])
		default:
			w.set.Mul(t, t, o.b.f32(r)[s*o.h:][:o.h])
			w.set.Add(sum, t)
		}
	}
	w.set.Scale(sum, sum, o.scale)
	w.set.ToBF16(o.dst.u16(r), sum)
}

// Spread gives the output of a sub-layer to the streams.
func (q *queue) Spread(x, y, inject, mix kernels.Buf) {
	const op = "spread"
	if q.off() {
		return
	}
	o := streamOp{kind: streamSpread, dst: q.typed(op, "x", x, kernels.BF16)}
	o.a = q.shaped(op, "y", y, kernels.BF16, o.dst.rows, int(y.Cols))
	o.h = o.a.cols
	o.n = q.streamsOf(op, o.dst.cols, o.h)
	o.b = q.shaped(op, "inject", inject, kernels.F32, o.dst.rows, o.n)
	if !mix.None() {
		o.c = q.shaped(op, "mix", mix, kernels.F32, o.dst.rows, o.n*o.n)
	}
	q.pushStreams(o, o.n*o.h, o.h, o.h)
}

func (w *worker) spread(o *streamOp, r int) {
	x, old, y, sum := o.dst.u16(r), w.f32(o.n*o.h), w.f32(o.h), w.f32(o.h)
	w.set.FromBF16(old, x)
	w.set.FromBF16(y, o.a.u16(r))
	for k := range o.n {
		if o.c.none() {
			copy(sum, old[k*o.h:])
		} else {
			clear(sum)
			for j := range o.n {
				w.set.Axpy(sum, old[j*o.h:][:o.h], o.c.f32(r)[j*o.n+k])
			}
		}
		w.set.Axpy(sum, y, o.b.f32(r)[k])
		w.set.ToBF16(x[k*o.h:][:o.h], sum)
	}
}

// Gate compares q with k by stream.
func (q *queue) Gate(dst, a, b kernels.Buf) {
	const op = "gate"
	if q.off() {
		return
	}
	o := streamOp{kind: streamGate, dst: q.real(op, "dst", dst)}
	o.n = o.dst.cols
	o.a = q.shaped(op, "q", a, kernels.BF16, o.dst.rows, int(a.Cols))
	o.b = q.shaped(op, "k", b, kernels.BF16, o.dst.rows, int(a.Cols))
	if !q.off() && (o.n == 0 || o.a.cols%o.n != 0) {
		q.bad("gate: q has %d columns for %d gates", o.a.cols, o.n)
	}
	if q.off() {
		return
	}
	o.h = o.a.cols / o.n
	q.pushStreams(o, o.h, o.h, o.n)
}

func (w *worker) gate(o *streamOp, r int) {
	a, b, out := w.f32(o.h), w.f32(o.h), w.f32(o.n)
	root := float32(math.Sqrt(float64(o.h)))
	for s := range out {
		w.set.FromBF16(a, o.a.u16(r)[s*o.h:][:o.h])
		w.set.FromBF16(b, o.b.u16(r)[s*o.h:][:o.h])
		w.set.Mul(a, a, b)
		d := float64(sumLanes(a) / root)
		out[s] = float32(math.Copysign(math.Sqrt(max(math.Abs(d), 1e-6)), d))
	}
	w.set.Sigmoid(out, out)
	w.put(o.dst, r, out)
}

// sumLanes adds the elements of x in 16 lanes, which meet in a tree.
func sumLanes(x []float32) float32 {
	var l [lanes]float32
	for i, v := range x {
		l[i%lanes] += v
	}
	for n := lanes / 2; n > 0; n /= 2 {
		for i := range n {
			l[i] += l[i+n]
		}
	}
	return l[0]
}
