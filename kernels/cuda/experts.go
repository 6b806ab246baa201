//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import "exacta.dev/exacta/kernels"

// maxExperts is MAX_EXPERTS: the most experts that a router chooses from.
const maxExperts = 2048

// Route chooses experts for each row of logits.
func (q *queue) Route(ids, weights, logits kernels.Buf, s *kernels.RouteSpec) {
	q.do(opRoute, func() {
		i := q.of(ids, "ids", kernels.I32, 0, s.K)
		w := q.of(weights, "weights", kernels.F32, i.rows, s.K)
		x := q.of(logits, "logits", kernels.F32, i.rows, -1)
		if q.bad != nil {
			return
		}
		q.failWith(s.Check(x.cols))
		if x.cols > maxExperts {
			q.fail("%d experts; at most %d fit", x.cols, maxExperts)
		}
		a := routeArgs{
			env: q.head(), ids: i.view(), weights: w.view(), logits: x.view(), scale: s.Scale,
			experts: int32(x.cols), k: int32(s.K), score: int32(s.Score),
			groups: int32(max(s.Groups, 1)), kept: int32(s.Kept), normalize: flag(s.Normalize), given: flag(s.Given),
		}
		if a.groups == 1 {
			a.kept = 1
		}
		if !s.Bias.None() {
			a.bias = q.vector(s.Bias, x.cols, "bias")
		}
		*args[routeArgs](q) = a
		q.launch(kRoute, i.rows, 1, 0)
	})
}

// Experts multiplies rows by the experts that ids names.
func (q *queue) Experts(dst kernels.Buf, h kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	q.do(opExperts, func() {
		w := q.weight(h, kernels.Bank, "w")
		cols := w.rows / w.experts
		switch {
		case q.bad != nil:
			return
		case act > kernels.SwiGLU:
			q.fail("unknown activation %d", act)
		case (act == kernels.SwiGLU) != w.paired:
			q.fail("activation %d on bank %s, paired %t; SwiGLU and paired banks go together", act, w.name, w.paired)
		case w.paired:
			cols /= 2
		}
		i := q.of(ids, "ids", kernels.I32, 0, -1)
		d := q.float(dst, "dst", i.rows*i.cols, cols)
		a := q.mixture(w, d, q.of(x, "x", kernels.BF16, i.rows, w.cols), i)
		a.n, a.act, a.paired = int32(cols), int32(act), flag(w.paired)
		*args[expertsArgs](q) = a
		q.launch(kExperts, ceil(cols, threads/32), i.rows*i.cols, 0)
		q.countMixture(w, i)
	})
}

// Mix sums the experts of each row by weight.
func (q *queue) Mix(dst kernels.Buf, h kernels.Weight, x, ids, weights, residual kernels.Buf) {
	q.do(opMix, func() {
		w := q.weight(h, kernels.Bank, "w")
		if q.bad == nil && w.paired {
			q.fail("bank %s is paired; outputs of experts are added", w.name)
		}
		if q.bad != nil {
			return
		}
		cols := w.rows / w.experts
		i := q.of(ids, "ids", kernels.I32, 0, -1)
		d := q.float(dst, "dst", i.rows, cols)
		a := q.mixture(w, d, q.of(x, "x", kernels.BF16, i.rows*i.cols, w.cols), i)
		a.n, a.weights = int32(cols), q.of(weights, "weights", kernels.F32, i.rows, i.cols).view()
		if !residual.None() {
			r := q.float(residual, "residual", i.rows, cols)
			a.res, a.resF32 = r.view(), flag(r.kind == kernels.F32)
		}
		*args[expertsArgs](q) = a
		q.launch(kMix, ceil(cols, threads/32), i.rows, 0)
		q.countMixture(w, i)
	})
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
		*args[expertsArgs](q) = expertsArgs{
			env: q.head(), dst: d.view(), x: s.view(), w: w.ptr, rows: int32(d.rows), experts: int32(w.experts),
			n: int32(w.rows / w.experts), k: int32(w.cols), dstF32: flag(d.kind == kernels.F32),
		}
		q.launch(kBlocks, ceil(w.rows, threads/32), d.rows, 0)
		c := q.counts()
		c.MatMulRows += uint64(d.rows)
		c.MACs += uint64(d.rows) * uint64(w.rows) * uint64(w.cols)
		c.WeightBytes += uint64(w.bytes)
	})
}

func (q *queue) mixture(w *weight, dst, x, ids operand) expertsArgs {
	return expertsArgs{
		env: q.head(), dst: dst.view(), x: x.view(), ids: ids.view(), w: w.ptr,
		rows: int32(ids.rows), each: int32(ids.cols), experts: int32(w.experts), k: int32(w.cols),
		dstF32: flag(dst.kind == kernels.F32),
	}
}

// countMixture counts the work: each pair of a row and an expert reads the expert.
func (q *queue) countMixture(w *weight, ids operand) {
	c, pairs := q.counts(), uint64(ids.rows*ids.cols)
	c.MatMulRows += pairs
	c.MACs += pairs * uint64(w.rows/w.experts) * uint64(w.cols)
	c.WeightBytes += pairs * uint64(w.bytes) / uint64(w.experts)
}
