package cpu

import (
	"math"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// hyperOp is a Hyper, or, without fn, a GateUp.
type hyperOp struct {
	dst, src    view
	s           kernels.HyperSpec
	fn          *weight
	base, scale []float32
	limit       float32
}

// Hyper records the coefficients of streams.
func (q *queue) Hyper(dst, x kernels.Buf, s *kernels.HyperSpec) {
	const op = "hyper"
	if q.off() {
		return
	}
	o := hyperOp{dst: q.typed(op, "dst", dst, kernels.F32), s: *s, fn: q.weightOf(op, s.Fn, kernels.Table)}
	o.src = q.shaped(op, "x", x, kernels.BF16, o.dst.rows, int(x.Cols))
	base, scale := q.weightOf(op, s.Base, kernels.Vector), q.weightOf(op, s.Scale, kernels.Vector)
	if q.off() {
		return
	}
	if err := s.Check(o.src.cols); err != nil {
		q.bad("hyper: %v", err)
		return
	}
	o.base, o.scale = base.values, scale.values
	if o.dst.cols != s.Cols() || o.fn.rows != s.Cols() || o.fn.cols != o.src.cols || len(o.base) != s.Cols() || len(o.scale) != s.Scales() {
		q.bad("hyper: dst has %d columns, fn %s is [%d, %d], base has %d elements, scale %d; want %d, [%d, %d], %d, %d",
			o.dst.cols, o.fn.name, o.fn.rows, o.fn.cols, len(o.base), len(o.scale), s.Cols(), s.Cols(), o.src.cols, s.Cols(), s.Scales())
		return
	}
	q.pushHyper(o, o.src.cols, o.src.cols)
}

// GateUp records a SwiGLU with a limit.
func (q *queue) GateUp(dst, x kernels.Buf, limit float32) {
	const op = "gate up"
	if q.off() {
		return
	}
	o := hyperOp{dst: q.typed(op, "dst", dst, kernels.BF16), limit: limit}
	if o.limit <= 0 {
		o.limit = float32(math.Inf(1))
	}
	if o.src = q.shaped(op, "x", x, kernels.F32, o.dst.rows, 2*o.dst.cols); !q.off() {
		q.pushHyper(o, o.src.cols)
	}
}

func (q *queue) pushHyper(o hyperOp, f32s ...int) {
	q.require(needs{worker: scratchBytes(f32s, nil)})
	q.list.hypers = append(q.list.hypers, o)
	q.push(opHyper, o.src.rows*o.src.cols <= soloElems/4, len(q.list.hypers)-1)
}

func (w *worker) hyper(o *hyperOp) {
	lo, hi := w.part(o.dst.rows)
	for r := lo; r < hi; r++ {
		w.begin()
		if o.fn == nil {
			w.gateUp(o, r)
		} else {
			w.hyperRow(o, r)
		}
	}
}

func (w *worker) gateUp(o *hyperOp, r int) {
	t, n := w.f32(o.src.cols), o.dst.cols
	in := o.src.f32(r)
	for i, v := range in[:n] {
		t[i] = min(v, o.limit)
	}
	for i, v := range in[n:] {
		t[n+i] = min(max(v, -o.limit), o.limit)
	}
	w.set.SwiGLUBF16(o.dst.u16(r), t[:n], t[n:])
}

func (w *worker) hyperRow(o *hyperOp, r int) {
	x, t := w.f32(o.src.cols), w.f32(o.src.cols)
	w.set.FromBF16(x, o.src.u16(r))
	rms, n := rsqrtMean(w.set.SumSquares(x), len(x), o.s.NormEps), o.s.Streams
	dst := o.dst.f32(r)
	for i := range dst {
		w.set.Mul(t, x, o.fn.row(i))
		part := min(i/n, 2)
		v := float32(float32(sumLanes(t)*rms)*o.scale[part]) + o.base[i]
		switch part {
		case 0:
			v = vec.Sigmoid32(v) + o.s.Eps
		case 1:
			v = 2 * vec.Sigmoid32(v)
		}
		dst[i] = v
	}
	if o.s.Iters > 0 {
		sinkhorn(dst[2*n:], n, o.s.Iters, o.s.Eps)
	}
}

// sinkhorn balances the n by n matrix of logits x.
func sinkhorn(x []float32, n, iters int, eps float32) {
	for j := 0; j < n*n; j += n {
		row := x[j:][:n]
		top, sum := row[0], float32(0)
		for _, v := range row {
			top = max(top, v)
		}
		for k, v := range row {
			row[k] = vec.Exp32(v - top)
			sum += row[k]
		}
		for k := range row {
			row[k] = row[k]/sum + eps
		}
	}
	for it := range iters {
		if it > 0 {
			balance(x, n, n, 1, eps)
		}
		balance(x, n, 1, n, eps)
	}
}

// balance divides each of n lines, whose starts and elements are so far apart, by its
// sum + eps.
func balance(x []float32, n, lines, elements int, eps float32) {
	for i := range n {
		sum := float32(0)
		for j := range n {
			sum += x[i*lines+j*elements]
		}
		for j := range n {
			x[i*lines+j*elements] /= sum + eps
		}
	}
}
