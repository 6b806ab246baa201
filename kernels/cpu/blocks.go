package cpu

import (
	"exacta.dev/exacta/kernels"
)

// Blocks records a product with a block-diagonal matrix.
func (q *queue) Blocks(dst kernels.Buf, w kernels.Weight, x kernels.Buf) {
	const op = "blocks"
	if q.off() {
		return
	}
	o := matmulOp{w: q.weightOf(op, w, kernels.Diagonal), dst: q.view(op, "dst", dst), x: q.typed(op, "x", x, kernels.BF16)}
	if q.off() {
		return
	}
	switch n := len(o.w.bank); {
	case o.dst.cols != o.w.rows || o.dst.kind == kernels.I32:
		q.bad("blocks %s: dst is %s with %d columns, want bf16 or f32 with %d", o.w.name, o.dst.kind, o.dst.cols, o.w.rows)
	case o.x.cols != n*o.w.cols || o.x.rows < o.dst.rows:
		q.bad("blocks %s: x is [%d, %d], want [%d, %d]", o.w.name, o.x.rows, o.x.cols, o.dst.rows, n*o.w.cols)
	case dst.ID == x.ID && overlap(dst, x):
		q.bad("blocks %s: dst and x overlap", o.w.name)
	case o.dst.rows > 0:
		o.block, o.k = min(o.dst.rows, expertRows), narrowK
		o.stream = o.dst.rows <= q.b.set.MaxM4 && q.b.mem.used[kernels.Weights] >= int64(q.b.stream)
		if o.dst.rows > q.b.set.MaxM4 {
			o.k = wideK
		}
		q.require(needs{worker: scratchBytes([]int{o.block * panelRows}, nil)})
		q.list.blocks = append(q.list.blocks, o)
		q.push(opBlocks, false, len(q.list.blocks)-1)
	}
}

// blocks computes this worker's share of the panels of all blocks.
func (w *worker) blocks(o *matmulOp) {
	n, panels := len(o.w.bank), o.w.bank[0].panels
	acc := w.f32(o.block * panelRows)
	lo, hi := w.share(n * panels)
	for u := lo; u < hi; u++ {
		m, i, p := *o, u/panels, u%panels
		m.w = o.w.bank[i]
		x := o.x
		x.p = addBytes(x.p, i*m.w.cols*kernels.BF16.Size())
		m.dst.p, m.dst.cols = addBytes(m.dst.p, i*m.w.rows*m.dst.kind.Size()), m.w.rows
		c0, c1 := p*panelRows, min((p+1)*panelRows, m.w.rows)
		for r := 0; r < m.dst.rows; r += o.block {
			rows := min(o.block, m.dst.rows-r)
			w.tiles(&m, x, r, rows, p, -1, nil, acc, panelRows)
			w.finish(&m, r, rows, c0, c1, acc, panelRows)
			w.count(&m, rows, c1-c0, 2)
		}
	}
	if w.id == 0 {
		w.work.MatMulRows += uint64(o.dst.rows)
	}
}
