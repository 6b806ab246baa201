package cpu

import (
	"exacta.dev/exacta/kernels"
)

// rotateOp is a Rotate.
type rotateOp struct {
	dst, src view
	b        tables
	rope     *weight
	s        kernels.RotateSpec
}

// Rotate records the rotation of heads.
func (q *queue) Rotate(dst, src kernels.Buf, b *kernels.Batch, s *kernels.RotateSpec) {
	const op = "rotate"
	if q.off() {
		return
	}
	if err := s.Check(); err != nil {
		q.bad("rotate: %v", err)
		return
	}
	o := rotateOp{b: q.batch(op, b), s: *s, rope: q.weightOf(op, s.Rope, kernels.Table)}
	o.dst = q.shaped(op, "dst", dst, kernels.BF16, b.Rows, s.Heads*s.Dim)
	o.src = q.shaped(op, "src", src, kernels.BF16, b.Rows, s.Heads*s.Dim)
	if q.off() {
		return
	}
	if o.rope.cols != s.Rotary {
		q.bad("rotate: rope table %s has %d columns, want %d", o.rope.name, o.rope.cols, s.Rotary)
		return
	}
	q.require(needs{worker: scratchBytes([]int{s.Dim}, nil)})
	q.list.rotates = append(q.list.rotates, o)
	q.push(opRotate, b.Rows*s.Heads*s.Dim <= soloElems/4, len(q.list.rotates)-1)
}

func (w *worker) rotate(o *rotateOp) {
	lo, hi := w.part(o.b.rows)
	x := w.f32(o.s.Dim)
	for r := lo; r < hi; r++ {
		pos := o.b.pos.at(r)
		if o.b.span.at(r) < 0 {
			continue
		}
		if o.s.Ratio > 0 {
			if (pos+1)%o.s.Ratio != 0 {
				continue
			}
			pos -= o.s.Ratio - 1
		}
		if pos < 0 || pos >= o.rope.rows {
			w.fail("cpu: rotate: row %d is at position %d; the rope table has %d", r, pos, o.rope.rows)
			return
		}
		src, dst, turn := o.src.u16(r), o.dst.u16(r), o.rope.row(pos)
		for at := 0; at < len(src); at += o.s.Dim {
			w.set.FromBF16(x, src[at:][:o.s.Dim])
			if o.s.Unit {
				w.set.Scale(x, x, rsqrtMean(w.set.SumSquares(x), len(x), o.s.Eps))
			}
			turnPairs(x[o.s.Dim-o.s.Rotary:], turn, o.s.Inverse)
			w.set.ToBF16(dst[at:][:o.s.Dim], x)
			if o.s.Round != kernels.RoundNone {
				w.set.FromBF16(x, dst[at:][:o.s.Dim])
				kernels.Round(o.s.Round, x)
				w.set.ToBF16(dst[at:][:o.s.Dim], x)
			}
		}
	}
}

// turnPairs rotates pairs (i, i+1) by cosines and sines, back if inverse.
func turnPairs(x, turn []float32, inverse bool) {
	half := len(x) / 2
	for i := range half {
		cos, sin, a, b := turn[i], turn[half+i], x[2*i], x[2*i+1]
		if inverse {
			sin = -sin
		}
		x[2*i] = float32(a*cos) - float32(b*sin)
		x[2*i+1] = float32(b*cos) + float32(a*sin)
	}
}
