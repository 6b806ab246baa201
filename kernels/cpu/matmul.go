package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

const (
	// narrowK is the longest K of one call of the primitive when there are few
	// rows: 64 outputs of it are 256 KiB, about 10 us of reading.
	narrowK = 2048
	// wideK is that for more rows than one tile: the block of the panel stays in
	// the second-level cache while tile after tile of rows passes by.
	wideK = 1024
	// wideBytes bounds the activations of a block of rows, and wideRows its
	// accumulators, so that both stay in the second-level cache.
	wideBytes = 1 << 20
	wideRows  = 512
	// groupCols is the number of outputs of one row that are finished together,
	// and wideGroup the number of half panels where there are many rows.
	groupCols, wideGroup = 1024, 4
	// streamBytes is the size of all weights from which a product of few rows
	// takes them to come from memory rather than from a cache.
	streamBytes = 96 << 20
	// sharedNormRows is the number of rows from which the input norm is shared
	// out; below, every worker norms all rows for itself and needs no barrier.
	sharedNormRows = 16
)

// matmulOp is dst = epilogue(norm(x) Wᵀ).
type matmulOp struct {
	dst, x, res view
	w           *weight
	in          norm
	bias        []float32 // nil is none
	act         kernels.Act
	direct      bool // the primitive writes to dst itself
	stream      bool // the panels come from memory
	block       int  // rows of a block
	k           int  // longest K of a call
	group       int  // halves of a panel that are finished together
}

// MatMul records dst = epilogue(norm(x) Wᵀ).
func (q *queue) MatMul(dst kernels.Buf, w kernels.Weight, x kernels.Buf, l kernels.Linear) {
	const op = "matmul"
	if q.off() {
		return
	}
	o := matmulOp{dst: q.view(op, "dst", dst), x: q.typed(op, "x", x, kernels.BF16), w: q.weightOf(op, w, kernels.Matrix), act: l.Act}
	if q.off() {
		return
	}
	if !l.Residual.None() {
		o.res = q.view(op, "residual", l.Residual)
	}
	o.in = q.normOf(op, l.In, o.x.cols)
	o.bias = q.biasOf(&o, l)
	if q.off() || !q.matmulFits(&o) {
		return
	}
	if dst.ID == x.ID && overlap(dst, x) {
		q.bad("matmul %s: dst and x overlap", o.w.name)
		return
	}
	if o.dst.rows == 0 {
		return
	}
	o.plan(q)
	q.list.matmuls = append(q.list.matmuls, o)
	q.push(opMatMul, false, len(q.list.matmuls)-1)
}

// biasOf resolves the bias of a product, whose dst has been resolved.
func (q *queue) biasOf(o *matmulOp, l kernels.Linear) []float32 {
	if l.Bias.None() || q.off() {
		return nil
	}
	w := q.weightOf("matmul", l.Bias, kernels.Vector)
	switch {
	case w == nil:
		return nil
	case l.Act == kernels.SwiGLU:
		q.bad("matmul %s: SwiGLU has no bias", o.w.name)
		return nil
	case l.BiasFrom < 0 || l.BiasFrom+o.dst.cols > len(w.values):
		q.bad("matmul %s: bias %s has %d elements, columns %d+%d were asked for", o.w.name, w.name, len(w.values), l.BiasFrom, o.dst.cols)
		return nil
	}
	return w.values[l.BiasFrom:][:o.dst.cols]
}

func overlap(a, b kernels.Buf) bool {
	return a.Row < b.Row+b.Rows && b.Row < a.Row+a.Rows && a.Col < b.Col+b.Cols && b.Col < a.Col+a.Cols
}

func (q *queue) matmulFits(o *matmulOp) bool {
	n := o.w.rows
	if o.act == kernels.SwiGLU {
		n /= 2
	}
	switch {
	case o.act > kernels.SwiGLU:
		q.bad("matmul %s: unknown activation %d", o.w.name, o.act)
	case o.act == kernels.SwiGLU && !o.w.paired:
		q.bad("matmul %s: SwiGLU needs a paired weight", o.w.name)
	case o.x.cols != o.w.cols:
		q.bad("matmul %s: x has %d columns, the weight [%d, %d]", o.w.name, o.x.cols, o.w.rows, o.w.cols)
	case o.dst.cols != n || o.dst.kind == kernels.I32:
		q.bad("matmul %s: dst is %s with %d columns, want bf16 or f32 with %d", o.w.name, o.dst.kind, o.dst.cols, n)
	case o.dst.rows > o.x.rows:
		q.bad("matmul %s: dst has %d rows, x %d", o.w.name, o.dst.rows, o.x.rows)
	case !o.res.none() && (o.res.rows < o.dst.rows || o.res.cols != n || o.res.kind == kernels.I32):
		q.bad("matmul %s: residual is %s [%d, %d], dst [%d, %d]", o.w.name, o.res.kind, o.res.rows, o.res.cols, o.dst.rows, n)
	default:
		return true
	}
	return false
}

// plan chooses the blocking. It changes speed and never bits.
func (o *matmulOp) plan(q *queue) {
	rows := o.dst.rows
	o.block, o.k = rows, narrowK
	o.group = max(1, groupCols/panelRows/rows) * 2
	o.stream = q.b.set.Stream != nil && q.b.mem.used[kernels.Weights] >= int64(q.b.stream)
	if rows > q.b.set.MaxM4 {
		o.stream = false
		limit := min(wideRows, max(64, wideBytes/2/o.w.cols))
		blocks := (rows + limit - 1) / limit
		o.k, o.group = wideK, wideGroup
		o.block = (rows + blocks - 1) / blocks
	}
	wide := 0
	if o.w.int4 > 0 {
		o.block = min(rows, wideBlock(o.w.cols))
		wide = o.block * wideStride(o.w.cols)
	}
	o.direct = o.dst.kind == kernels.F32 && o.act == kernels.Identity && o.bias == nil && o.res.none() && !o.w.paired
	n := needs{}
	acc := min(o.block, rows) * o.group * halfRows
	normed := 0
	if o.in.w != nil {
		if rows >= sharedNormRows {
			n.shared = rows * rowStride(kernels.BF16, o.w.cols)
		} else {
			normed = rows * o.w.cols
		}
	}
	n.worker = scratchBytes([]int{acc, o.dst.cols, wide}, []int{normed})
	q.require(n)
}

// matmul runs this worker's part of product i of a list.
func (w *worker) matmul(l *list, i int) bool {
	o := &l.matmuls[i]
	w.next = nil
	if o.stream && i+1 < len(l.matmuls) {
		w.next = l.matmuls[i+1].begins(w)
	}
	x, ok := w.normed(o)
	if !ok {
		return false
	}
	acc := w.f32(o.block * o.group * halfRows)
	if o.w.int4 > 0 {
		w.wide = w.f32(o.block * wideStride(o.w.cols))
	}
	for r := 0; r < o.dst.rows; r += o.block {
		n := min(o.block, o.dst.rows-r)
		if o.w.int4 > 0 {
			w.widen4(o, x, r, n)
		}
		if o.w.paired {
			w.pairedRows(o, x, r, n, acc)
		} else {
			w.plainRows(o, x, r, n, acc)
		}
	}
	if w.id == 0 {
		w.work.MatMulRows += uint64(o.dst.rows)
	}
	return true
}

// begins returns where a worker begins to read the weight of a product that streams,
// else nil.
func (o *matmulOp) begins(w *worker) *uint16 {
	if !o.stream || o.w.int4 > 0 {
		return nil
	}
	p, _ := w.share(o.w.panels)
	if !o.w.paired {
		lo, _ := w.share(o.w.halves())
		p = (lo + 1) / 2
	}
	return (*uint16)(o.w.panel(min(p, o.w.panels-1)))
}

// ifLast returns where reading goes on after the last of a row of steps; after the
// others, nil, it goes on behind them.
func ifLast(last bool, next *uint16) *uint16 {
	if last {
		return next
	}
	return nil
}

// normed returns the rows that enter the product.
func (w *worker) normed(o *matmulOp) (view, bool) {
	rows := o.dst.rows
	if o.in.w == nil {
		return o.x, true
	}
	v := view{rows: rows, cols: o.w.cols, kind: kernels.BF16}
	if rows < sharedNormRows {
		v.stride = 2 * v.cols
		v.p = unsafe.Pointer(unsafe.SliceData(w.u16(rows * v.cols)))
		for r := range rows {
			o.in.apply(w, v.u16(r), o.x.u16(r))
		}
		return v, true
	}
	v.stride = rowStride(kernels.BF16, v.cols)
	v.p = unsafe.Pointer(unsafe.SliceData(w.shared))
	lo, hi := w.share(rows)
	for r := lo; r < hi; r++ {
		o.in.apply(w, v.u16(r), o.x.u16(r))
	}
	return v, w.sync()
}

// plainRows computes this worker's outputs of rows [r, r+n). It begins with a whole
// panel: a half before it is read behind the others.
func (w *worker) plainRows(o *matmulOp, x view, r, n int, acc []float32) {
	lo, hi := w.share(o.w.halves())
	whole := min(roundUp(lo, 2), hi)
	if whole == lo {
		w.halves(o, x, r, n, lo, hi, w.next, acc)
		return
	}
	w.halves(o, x, r, n, whole, hi, (*uint16)(o.w.panel(lo/2)), acc)
	w.halves(o, x, r, n, lo, whole, w.next, acc)
}

// halves computes the outputs of halves [lo, hi), before next is read.
func (w *worker) halves(o *matmulOp, x view, r, n, lo, hi int, next *uint16, acc []float32) {
	stride := o.group * halfRows
	for u := lo; u < hi; {
		end := min(hi, u/2*2+o.group)
		then := ifLast(end == hi, next)
		c0, c1 := u*halfRows, min(end*halfRows, o.w.rows)
		if o.direct && c1 == end*halfRows {
			out := unsafe.Slice((*float32)(addBytes(o.dst.row(r), 4*c0)), (n-1)*o.dst.stride/4+c1-c0)
			w.units(o, x, r, n, u, end, then, out, o.dst.stride/4)
		} else {
			w.units(o, x, r, n, u, end, then, acc, stride)
			w.finish(o, r, n, c0, c1, acc, stride)
		}
		w.count(o, n, c1-c0, end-u)
		u = end
	}
}

// units computes the outputs of halves [u, end) into out, before next is read.
func (w *worker) units(o *matmulOp, x view, r, n, u, end int, next *uint16, out []float32, stride int) {
	for v := u; v < end; {
		at, half, step := out[(v-u)*halfRows:], -1, 2
		if v%2 != 0 || v+2 > end {
			half, step = v%2, 1
		}
		w.tiles(o, x, r, n, v/2, half, ifLast(v+step == end, next), at, stride)
		v += step
	}
}

// pairedRows computes this worker's panels of gate and up.
func (w *worker) pairedRows(o *matmulOp, x view, r, n int, acc []float32) {
	lo, hi := w.share(o.w.panels)
	stride := o.group * halfRows
	half := o.w.rows / 2
	for p := lo; p < hi; p++ {
		w.tiles(o, x, r, n, p, -1, ifLast(p+1 == hi, w.next), acc, stride)
		c0, c1 := p*halfRows, min((p+1)*halfRows, half)
		if o.act == kernels.SwiGLU {
			for i := range n {
				a := acc[i*stride:]
				w.swiglu(o, r+i, c0, c1, a)
			}
		} else {
			w.finish(o, r, n, c0, c1, acc, stride)
			w.finish(o, r, n, half+c0, half+c1, acc[halfRows:], stride)
		}
		w.count(o, n, 2*(c1-c0), 2)
	}
}

// tiles multiplies rows [r, r+n) by panel p, or by one half of it, in tiles of
// rows and blocks of K. next is read after it, if not nil.
func (w *worker) tiles(o *matmulOp, x view, r, n, p, half int, next *uint16, out []float32, stride int) {
	if o.w.int4 > 0 {
		w.tiles4(o, n, p, half, out, stride)
		return
	}
	set := w.set
	vecs, most := 4, set.MaxM4
	panel := o.w.panel(p)
	if half >= 0 {
		vecs, most = 2, set.MaxM2
		panel = addBytes(panel, half*halfRows*4)
	}
	count := (n + most - 1) / most
	tile := (n + count - 1) / count
	for k := 0; k < o.w.cols; k += o.k {
		k2 := min(o.k, o.w.cols-k) / 2
		from := (*uint16)(addBytes(panel, k*panelRows*2))
		for i := 0; i < n; i += tile {
			in, at, rows := (*uint16)(addBytes(x.row(r+i), 2*k)), &out[i*stride], min(tile, n-i)
			if !o.stream {
				set.Gemm(at, stride, from, vecs, in, x.stride/2, rows, k2, k > 0)
				continue
			}
			set.Stream(at, stride, from, ifLast(k+o.k >= o.w.cols, next), vecs, in, x.stride/2, rows, k2, k > 0)
		}
	}
}

// count adds to the evidence of the work done: real outputs, halves of panels
// read.
func (w *worker) count(o *matmulOp, rows, cols, halves int) {
	w.work.MACs += uint64(rows) * uint64(cols) * uint64(o.w.cols)
	w.work.WeightBytes += uint64(halves) * uint64(o.w.halfBytes())
}
