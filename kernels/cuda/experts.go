//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

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
		q.launchBlock(kRoute, driver.Grid{X: i.rows, Y: 1, Block: 32, Shared: 4 * (3*x.cols + int(a.groups) + s.K)})
	})
}

// sortWarps is SORTERS: the warps that sort pairs.
const sortWarps = 16

// unsorted is how many rows share so few experts that each pair is multiplied by itself.
const unsorted = 4

// sortShared is the shared memory of sort_pairs.
func sortShared(experts int) int { return experts*4 + experts*sortWarps*2 }

// chunksOf is the most chunks that pairs can fall into.
func chunksOf(pairs, experts, chunk int) int { return min(pairs, experts) + pairs/chunk }

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
		s := q.of(x, "x", kernels.BF16, i.rows, w.cols)
		m := matMul{product: product{
			n: int32(cols), k: int32(w.cols), act: int32(act), paired: flag(w.paired), blocks: 1,
			dstF32: flag(d.kind == kernels.F32), each: int32(i.cols), spread: 1,
		}, w: w}
		q.grouped(m, mixture{ids: i, x: s, dst: d})
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
		s := q.of(x, "x", kernels.BF16, i.rows*i.cols, w.cols)
		by := q.of(weights, "weights", kernels.F32, i.rows, i.cols)
		r := operand{}
		if !residual.None() {
			r = q.float(residual, "residual", i.rows, cols)
		}
		m := matMul{product: product{n: int32(cols), k: int32(w.cols), blocks: 1, dstF32: 1, each: 1, spread: 1}, w: w}
		q.grouped(m, mixture{ids: i, x: s, dst: d, weights: by, residual: r, sum: true})
		q.countMixture(w, i)
	})
}

// mixture is what Experts and Mix work on.
type mixture struct {
	ids, x, dst       operand
	weights, residual operand // of a sum
	sum               bool
}

// grouped multiplies the pairs that ids names, as many rows at a time as there is room
// for; of a sum the products go to the room first.
func (q *queue) grouped(m matMul, x mixture) {
	each := x.ids.cols
	if each == 0 || q.bad != nil {
		return
	}
	most := roomPairs / each
	if x.sum {
		most = min(most, q.room.rows(4*each*int(m.n)))
	}
	for at := 0; at < x.ids.rows && q.bad == nil; at += most {
		rows := min(most, x.ids.rows-at)
		m.pairs, m.product.rows = rows*each, int32(rows*each)
		if x.sum {
			m.x, m.dst = x.x.from(at*each), view{p: q.room.values, ld: m.n, rows: m.product.rows}
		} else {
			m.x, m.dst = x.x.from(at), x.dst.from(at*each).view()
		}
		m.ids, m.eachID = x.ids.from(at).view(), int32(each)
		m.order, m.chunks, m.count = q.room.order, q.room.chunks, q.room.count
		m.chunk = q.chunk(m, rows)
		if rows <= unsorted && q.hopperFits(m) {
			m.chunk, m.chunks = smallTile, 0
		} else {
			q.sort(sortKey{ids: m.ids, rows: rows, each: each, experts: m.w.experts, chunk: m.chunk})
		}
		q.multiply(m)
		if x.sum {
			q.sumPairs(x, at, rows)
		}
	}
}

// sortKey says what was sorted.
type sortKey struct {
	ids                        view
	rows, each, experts, chunk int
}

// sort brings pairs into the order of experts, unless the operation in front (Experts,
// before Mix) has left them so.
func (q *queue) sort(k sortKey) {
	if q.sorted == k {
		return
	}
	q.sorted = k
	*args[sortArgs](q) = sortArgs{
		env: q.head(), ids: k.ids, order: q.room.order, chunks: q.room.chunks, count: q.room.count,
		rows: int32(k.rows), each: int32(k.each), experts: int32(k.experts), chunk: int32(k.chunk),
	}
	q.launchBlock(kSort, driver.Grid{X: 1, Y: 1, Block: 32 * sortWarps, Shared: sortShared(k.experts)})
}

// sumPairs adds the products of rows at.. that lie in the room.
func (q *queue) sumPairs(x mixture, at, rows int) {
	a := sumArgs{
		env: q.head(), dst: x.dst.from(at).view(), weights: x.weights.from(at).view(), y: q.room.values,
		each: int32(x.ids.cols), n: int32(x.dst.cols), dstF32: flag(x.dst.kind == kernels.F32), resF32: flag(x.residual.kind == kernels.F32),
	}
	if x.residual.p != 0 {
		a.res = x.residual.from(at).view()
	}
	*args[sumArgs](q) = a
	q.launchBlock(kSum, driver.Grid{X: ceil(x.dst.cols, threads), Y: rows, Block: threads})
}

// chunk is the most rows of an expert that are multiplied at a time.
func (q *queue) chunk(m matMul, rows int) int {
	switch mean := m.pairs / m.w.experts; {
	case !q.hopperFits(m) && (rows <= smallTile || mean < smallTile/2):
		return smallTile
	case !q.hopperFits(m):
		return largeTile
	case mean >= 48 && m.n%4 == 0 && aligned(m.dst, m.dstF32):
		return hopperRows
	default: // room for an expert that has three times its share, and more
		return min(rows+7, 64, 3*mean+15) &^ 7
	}
}

// countMixture counts the work: each pair of a row and an expert reads the expert.
func (q *queue) countMixture(w *weight, ids operand) {
	c, pairs := q.counts(), uint64(ids.rows*ids.cols)
	c.MatMulRows += pairs
	c.MACs += pairs * uint64(w.rows/w.experts) * uint64(w.cols)
	c.WeightBytes += pairs * uint64(w.bytes) / uint64(w.experts)
}
