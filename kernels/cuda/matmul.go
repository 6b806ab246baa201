//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Tiles of the form of the matrix product that serves every generation: outputs of a
// block, and its rows of x.
const (
	tileOutputs = 64
	smallTile   = 8
	largeTile   = 32
)

// matMul is a matrix product that is about to be launched.
type matMul struct {
	product
	w *weight
	x operand
	// Of a grouped product: pairs of a row and an expert (else 0), most of them
	// that are multiplied together, and who they are.
	pairs, chunk int
	ids          view
	eachID       int32
}

// MatMul computes act(norm(x) Wᵀ) + residual. Which kernel and tile runs follows the
// number of rows; the bits do not.
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
		m := matMul{product: product{
			k: int32(w.cols), n: int32(cols), act: int32(l.Act), paired: flag(w.paired), blocks: 1, dstF32: flag(d.kind == kernels.F32),
		}, w: w}
		if !l.Bias.None() {
			m.bias = q.bias(l, cols)
		}
		r := operand{}
		if !l.Residual.None() {
			r = q.float(l.Residual, "residual", d.rows, cols)
			m.resF32 = flag(r.kind == kernels.F32)
		}
		// A norm leaves its rows in spare room, as many at a time as fit.
		most := d.rows
		if n.w != 0 {
			most = min(most, q.room.rows(2*w.cols))
		}
		for at := 0; at < d.rows && q.bad == nil; at += most {
			m.product.rows = int32(min(most, d.rows-at))
			m.x, m.dst = s.from(at), d.from(at).view()
			if r.p != 0 {
				m.res = r.from(at).view()
			}
			if n.w != 0 {
				m.x = q.normed(m.x, n, int(m.product.rows))
			}
			q.multiply(m)
		}
		q.countProduct(w, d.rows)
	})
}

// normed norms rows of x into the spare room.
func (q *queue) normed(x operand, n norm, rows int) operand {
	to := operand{p: q.room.values, kind: kernels.BF16, ld: x.cols, rows: rows, cols: x.cols}
	*args[normArgs](q) = normArgs{
		env: q.head(), dst: to.view(), x: x.view(), w: n.w, eps: n.eps, cols: int32(x.cols), group: n.group, centered: n.centered,
	}
	q.launchNorm(rows, x.cols, n)
	return to
}

// Blocks multiplies by a block-diagonal matrix.
func (q *queue) Blocks(dst kernels.Buf, h kernels.Weight, x kernels.Buf) {
	q.do(opBlocks, func() {
		w := q.weight(h, kernels.Diagonal, "w")
		if q.bad != nil {
			return
		}
		d := q.float(dst, "dst", 0, w.rows)
		s := q.of(x, "x", kernels.BF16, d.rows, w.experts*w.cols)
		q.multiply(matMul{product: product{
			dst: d.view(), rows: int32(d.rows), n: int32(w.rows / w.experts), k: int32(w.cols),
			blocks: int32(w.experts), dstF32: flag(d.kind == kernels.F32),
		}, w: w, x: s})
		q.countProduct(w, d.rows)
	})
}

func (q *queue) countProduct(w *weight, rows int) {
	c := q.counts()
	c.MatMulRows += uint64(rows)
	c.MACs += uint64(rows) * uint64(w.rows) * uint64(w.cols)
	c.WeightBytes += uint64(w.bytes)
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

// multiply launches a product in the form that is best for its shape.
func (q *queue) multiply(m matMul) {
	m.fours = flag(m.n%4 == 0 && aligned(m.dst, m.dstF32) && (m.res.p == 0 || aligned(m.res, m.resF32)))
	switch {
	case q.bad != nil || m.product.rows == 0:
	case q.hopperFits(m):
		q.multiplyHopper(m)
	default:
		q.multiplyPlain(m)
	}
}

// aligned reports whether four elements of a view can be reached at once.
func aligned(v view, f32 int32) bool {
	return v.ld%4 == 0 && v.p%driver.Ptr(8+8*f32) == 0
}

// multiplyPlain launches the form that serves every generation and shape.
func (q *queue) multiplyPlain(m matMul) {
	kernel, tile := plainKernel(m)
	down := ceil(int(m.product.rows), tile)
	if m.pairs > 0 {
		down = chunksOf(m.pairs, m.w.experts, m.chunk)
	}
	*args[matMulArgs](q) = matMulArgs{
		env: q.head(), product: m.product, x: m.x.view(), w: m.w.ptr, meta: m.w.meta, scaled: int32(m.w.group),
	}
	q.launch(kernel, ceil(int(m.n), tileOutputs)*int(m.blocks), down, 0)
}

// plainKernel picks a kernel: its tile of rows, whether operands can be loaded two
// elements at a time, and what the weight is.
func plainKernel(m matMul) (kernelID, int) {
	rows := int(m.product.rows)
	if m.pairs > 0 {
		rows = m.chunk
	}
	id, tile := kMatMul, smallTile
	if rows > smallTile {
		id, tile = id+4, largeTile
	}
	if m.w.cols%2 == 0 && m.x.ld%2 == 0 && m.x.p%4 == 0 {
		id += 2
	}
	if m.paired != 0 {
		id++
	}
	if m.w.group > 0 {
		id += 8
	}
	return id, tile
}
