package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

const (
	// mixtureBytes bounds the sorted rows of a block, and expertRows the rows
	// of an expert that are multiplied together.
	mixtureBytes = 16 << 20
	expertRows   = 128
)

// mixtureOp is Experts or Mix. The pairs of a row and one of its experts are sorted
// by expert, and the rows of x are laid out in that order, so that each expert's
// rows are one product and its panels are read once. The result of a pair is that
// of the product of its row alone, wherever it stands.
type mixtureOp struct {
	matmulOp  // dst, x, residual and activation; w is the bank
	ids       view
	weights   view // of Mix
	n         int  // experts of a row
	blockRows int  // rows whose pairs are sorted together
	cols      int  // outputs of a unit of Mix: a panel, or half of one
}

func (o *mixtureOp) mix() bool { return !o.weights.none() }

func (o *mixtureOp) name() string {
	if o.mix() {
		return "mix"
	}
	return "experts"
}

// Experts records products with the experts of each row.
func (q *queue) Experts(dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf, act kernels.Act) {
	const op = "experts"
	o, ok := q.mixtureOf(op, dst, w, x, ids)
	if !ok {
		return
	}
	o.act = act
	n := o.w.bank[0].rows
	if act == kernels.SwiGLU {
		n /= 2
	}
	switch rows := o.ids.rows; {
	case act > kernels.SwiGLU || (act == kernels.SwiGLU) != o.w.paired:
		q.bad("experts %s: activation %d of a bank that is paired: %t", o.w.name, act, o.w.paired)
	case o.dst.rows < rows*o.n || o.dst.cols != n || o.x.rows < rows:
		q.bad("experts %s: dst is [%d, %d], x [%d, %d]; want [%d, %d] and [%d, %d]", o.w.name, o.dst.rows, o.dst.cols, o.x.rows, o.x.cols, rows*o.n, n, rows, o.w.cols)
	default:
		q.pushMixture(o, len(q.b.pool.workers))
	}
}

// Mix records the weighted sum of the experts of each row.
func (q *queue) Mix(dst kernels.Buf, w kernels.Weight, x, ids, weights, residual kernels.Buf) {
	const op = "mix"
	o, ok := q.mixtureOf(op, dst, w, x, ids)
	if !ok {
		return
	}
	rows, n := o.ids.rows, o.w.bank[0].rows
	o.weights = q.shaped(op, "weights", weights, kernels.F32, rows, o.n)
	if !residual.None() {
		o.res = q.view(op, "residual", residual)
	}
	switch {
	case q.off():
	case o.w.paired:
		q.bad("mix %s: the bank is paired", o.w.name)
	case o.dst.rows < rows || o.dst.cols != n || o.x.rows < rows*o.n:
		q.bad("mix %s: dst is [%d, %d], x [%d, %d]; want [%d, %d] and [%d, %d]", o.w.name, o.dst.rows, o.dst.cols, o.x.rows, o.x.cols, rows, n, rows*o.n, o.w.cols)
	case !o.res.none() && (o.res.rows < rows || o.res.cols != n || o.res.kind == kernels.I32):
		q.bad("mix %s: residual is %s [%d, %d], want [%d, %d]", o.w.name, o.res.kind, o.res.rows, o.res.cols, rows, n)
	default:
		q.pushMixture(o, len(q.b.pool.workers))
	}
}

// mixtureOf resolves the operands that both have.
func (q *queue) mixtureOf(op string, dst kernels.Buf, w kernels.Weight, x, ids kernels.Buf) (o mixtureOp, ok bool) {
	if q.off() {
		return o, false
	}
	o.w = q.weightOf(op, w, kernels.Bank)
	o.dst, o.x = q.view(op, "dst", dst), q.typed(op, "x", x, kernels.BF16)
	o.ids = q.typed(op, "ids", ids, kernels.I32)
	if q.off() {
		return o, false
	}
	o.n = o.ids.cols
	switch {
	case o.dst.kind == kernels.I32:
		q.bad("%s %s: dst is %s, want bf16 or f32", op, o.w.name, o.dst.kind)
	case o.x.cols != o.w.cols:
		q.bad("%s %s: x has %d columns, an expert [%d, %d]", op, o.w.name, o.x.cols, o.w.bank[0].rows, o.w.cols)
	case dst.ID == x.ID && overlap(dst, x):
		q.bad("%s %s: dst and x overlap", op, o.w.name)
	}
	return o, !q.off()
}

// pushMixture chooses the blocking, which changes speed and never bits.
func (q *queue) pushMixture(o mixtureOp, workers int) {
	rows := o.ids.rows
	if rows == 0 || o.n == 0 {
		return
	}
	o.stream = q.b.mem.used[kernels.Weights] >= int64(q.b.stream)
	stride := rowStride(kernels.BF16, o.w.cols)
	o.blockRows = min(rows, max(1, mixtureBytes/stride/o.n))
	o.cols = panelRows
	if o.w.bank[0].panels < 4*workers {
		o.cols = halfRows
	}
	pairs := o.blockRows * o.n
	acc := min(pairs, expertRows) * panelRows
	if o.mix() {
		acc = pairs * o.cols
	}
	q.require(needs{
		worker: scratchBytes([]int{len(o.w.bank) + 1, pairs, pairs, acc, panelRows, panelRows}, nil),
		shared: pairs * stride,
	})
	q.list.mixtures = append(q.list.mixtures, o)
	q.push(opMixture, false, len(q.list.mixtures)-1)
}

// sorted are the pairs of a block by expert.
type sorted struct {
	row    int     // first row of the block
	first  []int32 // by expert, the place of its first pair; one more at the end
	pairs  []int32 // by place, the pair: row of the block times n, and which of its experts
	places []int32 // by pair, its place
	x      view    // rows of x, by place
}

// experts calls f for each expert that has pairs.
func (s *sorted) experts(f func(e, from, n int)) {
	for e := range len(s.first) - 1 {
		if n := s.first[e+1] - s.first[e]; n > 0 {
			f(e, int(s.first[e]), int(n))
		}
	}
}

func (w *worker) mixture(o *mixtureOp) bool {
	for row := 0; row < o.ids.rows; row += o.blockRows {
		w.begin()
		s, ok := w.sortPairs(o, row, min(o.blockRows, o.ids.rows-row))
		if !w.sync() || !ok {
			return false
		}
		if o.mix() {
			w.mixBlock(o, &s)
		} else {
			w.expertsBlock(o, &s)
		}
		if w.id == 0 {
			w.work.MatMulRows += uint64(len(s.pairs))
		}
		if row+o.blockRows < o.ids.rows && !w.sync() {
			return false
		}
	}
	return true
}

// sortPairs sorts the pairs of rows [row, row+n), each worker for itself, and lays
// out this worker's share of the rows of x.
func (w *worker) sortPairs(o *mixtureOp, row, n int) (s sorted, ok bool) {
	experts := len(o.w.bank)
	s.row = row
	s.first = int32s(unsafe.Pointer(unsafe.SliceData(w.f32(experts+1))), experts+1)
	s.pairs = int32s(unsafe.Pointer(unsafe.SliceData(w.f32(n*o.n))), n*o.n)
	s.places = int32s(unsafe.Pointer(unsafe.SliceData(w.f32(n*o.n))), n*o.n)
	clear(s.first)
	for i := range n {
		for _, e := range o.ids.i32(row + i) {
			if e < 0 || int(e) >= experts {
				w.fail("cpu: %s: row %d is for expert %d; %s has %d", o.name(), row+i, e, o.w.name, experts)
				return s, false
			}
			s.first[e]++
		}
	}
	at := int32(0)
	for e, count := range s.first {
		s.first[e] = at
		at += count
	}
	for i := range n {
		for j, e := range o.ids.i32(row + i) {
			s.places[i*o.n+j] = s.first[e]
			s.pairs[s.first[e]] = int32(i*o.n + j)
			s.first[e]++
		}
	}
	copy(s.first[1:], s.first[:experts])
	s.first[0] = 0

	s.x = view{p: unsafe.Pointer(unsafe.SliceData(w.shared)), stride: rowStride(kernels.BF16, o.w.cols), rows: n * o.n, cols: o.w.cols, kind: kernels.BF16}
	lo, hi := w.share(len(s.pairs))
	for i := lo; i < hi; i++ {
		from := row*o.n + int(s.pairs[i])
		if !o.mix() {
			from /= o.n
		}
		copy(s.x.u16(i), o.x.u16(from))
	}
	return s, true
}

// expert makes m the product with an expert of n rows.
func (o *mixtureOp) expert(m *matmulOp, e, n, most int) {
	m.w, m.k, m.stream = o.w.bank[e], narrowK, o.stream
	if n > most {
		m.k, m.stream = wideK, false
	}
}

// expertsBlock computes this worker's panels: the units of all experts stand in a
// row, each as long as it has work, and a worker has a stretch of it.
func (w *worker) expertsBlock(o *mixtureOp, s *sorted) {
	m := o.matmulOp
	panels := o.w.bank[0].panels
	cost := func(n int) int { return max(n, 4) }
	total := 0
	s.experts(func(_, _, n int) { total += panels * cost(n) })
	lo, hi := w.share(total)
	acc := w.f32(min(len(s.pairs), expertRows) * panelRows)
	at := 0
	s.experts(func(e, from, n int) {
		c := cost(n)
		first, last := max(0, (lo-at+c-1)/c), min(panels, (hi-at+c-1)/c)
		at += panels * c
		if first >= last {
			return
		}
		o.expert(&m, e, n, w.set.MaxM4)
		for p := first; p < last; p++ {
			for i := 0; i < n; i += expertRows {
				w.expertPanel(o, &m, s, from+i, min(expertRows, n-i), p, acc)
			}
		}
	})
}

// expertPanel computes panel p for the n pairs from a place on.
func (w *worker) expertPanel(o *mixtureOp, m *matmulOp, s *sorted, from, n, p int, acc []float32) {
	w.tiles(m, s.x, from, n, p, -1, nil, acc, panelRows)
	width, outputs := panelRows, m.w.rows
	if m.w.paired {
		width, outputs = halfRows, m.w.rows/2
	}
	c0, c1 := p*width, min((p+1)*width, outputs)
	for i := range n {
		row, a := s.row*o.n+int(s.pairs[from+i]), acc[i*panelRows:]
		if m.w.paired {
			w.swiglu(m, row, c0, c1, a)
		} else {
			w.finish(m, row, 1, c0, c1, a, panelRows)
		}
	}
	w.count(m, n, (c1-c0)*panelRows/width, 2)
}

// mixBlock computes this worker's outputs: the products of all pairs, then the sum
// of each row's in the order of its experts.
func (w *worker) mixBlock(o *mixtureOp, s *sorted) {
	m := o.matmulOp
	rows := o.w.bank[0].rows
	acc, sum := w.f32(len(s.pairs)*o.cols), w.f32(o.cols)
	lo, hi := w.share((rows + o.cols - 1) / o.cols)
	for u := lo; u < hi; u++ {
		c0, c1 := u*o.cols, min((u+1)*o.cols, rows)
		panel, half := c0/panelRows, -1
		if o.cols == halfRows {
			half = u % 2
		}
		s.experts(func(e, from, n int) {
			o.expert(&m, e, n, w.set.MaxM4)
			w.tiles(&m, s.x, from, n, panel, half, nil, acc[from*o.cols:], o.cols)
			w.count(&m, n, c1-c0, o.cols/halfRows)
		})
		y := sum[:c1-c0]
		for i := range len(s.pairs) / o.n {
			clear(y)
			weights := o.weights.f32(s.row + i)
			for j := range o.n {
				w.set.Axpy(y, acc[int(s.places[i*o.n+j])*o.cols:][:c1-c0], weights[j])
			}
			w.store(&m, s.row+i, c0, c1, y)
		}
	}
}
