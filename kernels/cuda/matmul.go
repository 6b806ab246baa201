//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Tiles of the matrix product: outputs of a block, and its rows of x.
const (
	tileOutputs = 64
	smallTile   = 8
	largeTile   = 32
)

// sharedDefault is the dynamic shared memory that every kernel may use.
const sharedDefault = 48 << 10

// MatMul computes act(norm(x) Wᵀ) + residual. The tile follows the number of
// rows; the bits do not.
func (q *queue) MatMul(dst kernels.Buf, h kernels.Weight, x kernels.Buf, l kernels.Linear) {
	q.do(opMatMul, func() {
		w := q.weight(h, kernels.Matrix, "w")
		cols := w.rows
		switch {
		case q.bad != nil:
			return
		case l.Act > kernels.SwiGLU:
			q.fail("unknown activation %d", l.Act)
		case (l.Act == kernels.SwiGLU) != w.paired:
			q.fail("activation %d on weight %s, paired %t; SwiGLU and paired weights go together", l.Act, w.name, w.paired)
		case w.paired:
			cols /= 2
		}
		d := q.float(dst, "dst", 0, cols)
		s := q.of(x, "x", kernels.BF16, d.rows, w.cols)
		n := q.norm(l.In, w.cols, "input norm")
		a := matMulArgs{
			env: q.head(), dst: d.view(), x: s.view(), w: w.ptr, meta: w.meta, nw: n.w,
			rows: int32(d.rows), n: int32(cols), k: int32(w.cols),
			act: int32(l.Act), dstF32: flag(d.kind == kernels.F32),
			group: n.group, centered: n.centered, eps: n.eps, scaled: int32(w.group),
		}
		if !l.Bias.None() {
			a.bias = q.bias(l, cols)
		}
		if !l.Residual.None() {
			r := q.float(l.Residual, "residual", d.rows, cols)
			a.res, a.resF32 = r.view(), flag(r.kind == kernels.F32)
		}
		if q.bad != nil {
			return
		}
		kernel, tile := matMulKernel(d.rows, w, s)
		shared := 0
		if n.w != 0 {
			shared = tile * (w.cols / int(n.group)) * 4
		}
		if shared > sharedDefault {
			q.fail("input norm has %d groups; at most %d fit", w.cols/int(n.group), sharedDefault/4/tile)
		}
		*args[matMulArgs](q) = a
		q.launch(kernel, ceil(cols, tileOutputs), ceil(d.rows, tile), shared)
		c := q.counts()
		c.MatMulRows += uint64(d.rows)
		c.MACs += uint64(d.rows) * uint64(w.rows) * uint64(w.cols)
		c.WeightBytes += uint64(w.bytes)
	})
}

// bias resolves the elements that a product of cols columns adds.
func (q *queue) bias(l kernels.Linear, cols int) driver.Ptr {
	w := q.weight(l.Bias, kernels.Vector, "bias")
	switch {
	case q.bad != nil:
	case l.Act == kernels.SwiGLU:
		q.fail("bias %s with SwiGLU, which has none", w.name)
	case l.BiasFrom < 0 || l.BiasFrom+cols > w.rows*w.cols:
		q.fail("bias %s has %d elements; columns %d+%d were asked for", w.name, w.rows*w.cols, l.BiasFrom, cols)
	}
	return w.ptr + driver.Ptr(4*l.BiasFrom)
}

// matMulKernel picks a form of the product: its tile of rows, whether operands can
// be loaded two elements at a time, and what the weight is.
func matMulKernel(rows int, w *weight, x operand) (kernelID, int) {
	id, tile := kMatMul, smallTile
	if rows > smallTile {
		id, tile = id+4, largeTile
	}
	if w.cols%16 == 0 && x.ld%2 == 0 && x.p%4 == 0 {
		id += 2
	}
	if w.paired {
		id++
	}
	if w.group > 0 {
		id += 8
	}
	return id, tile
}
