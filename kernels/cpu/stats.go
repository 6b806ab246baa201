package cpu

import (
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// statsOp reduces rows of logits.
type statsOp struct {
	dst, logits view
	vocab       int
	hash        bool
	segments    int
}

// segment is what a worker finds in one segment of a row.
type segment struct {
	id1, id2 int32
	v1, v2   float32
	nans     int32
	_        int32
	hash     uint64
	_        [4]uint64 // to a cache line
}

// Stats records the reduction of logits.
func (q *queue) Stats(dst, logits kernels.Buf, vocab int, hash bool) {
	const op = "stats"
	if q.off() {
		return
	}
	o := statsOp{dst: q.typed(op, "dst", dst, kernels.I32), logits: q.typed(op, "logits", logits, kernels.F32), vocab: vocab, hash: hash}
	if q.off() {
		return
	}
	if o.dst.cols != kernels.StatCols || o.dst.rows > o.logits.rows {
		q.bad("stats: dst is [%d, %d] for logits [%d, %d], want [%d, %d]", o.dst.rows, o.dst.cols, o.logits.rows, o.logits.cols, o.logits.rows, kernels.StatCols)
		return
	}
	if vocab < 2 || vocab > o.logits.cols {
		q.bad("stats: vocabulary of %d; want 2 up to the %d columns of the logits", vocab, o.logits.cols)
		return
	}
	o.segments = (o.logits.cols + kernels.HashSegment - 1) / kernels.HashSegment
	q.require(needs{shared: o.dst.rows * o.segments * int(unsafe.Sizeof(segment{}))})
	q.list.stats = append(q.list.stats, o)
	q.push(opStats, false, len(q.list.stats)-1)
}

func (w *worker) stats(o *statsOp) bool {
	n := o.dst.rows * o.segments
	if n == 0 {
		return true
	}
	all := unsafe.Slice((*segment)(unsafe.Pointer(unsafe.SliceData(w.shared))), n)
	lo, hi := w.share(n)
	for u := lo; u < hi; u++ {
		c := u % o.segments * kernels.HashSegment
		row := o.logits.f32(u / o.segments)
		all[u] = w.reduce(o, row[c:min(c+kernels.HashSegment, len(row))], c)
	}
	if !w.sync() {
		return false
	}
	lo, hi = w.share(o.dst.rows)
	for r := lo; r < hi; r++ {
		o.merge(r, all[r*o.segments:(r+1)*o.segments])
	}
	if w.id == 0 {
		w.work.LogitRows += uint64(o.dst.rows)
	}
	return true
}

// reduce handles the segment x that starts at column c.
func (w *worker) reduce(o *statsOp, x []float32, c int) segment {
	s := segment{id1: -1, id2: -1}
	n := min(len(x), max(0, o.vocab-c))
	if n > 0 {
		i1, i2, v1, v2, nans := w.set.Top2(x[:n])
		s = segment{id1: int32(i1), id2: int32(i2), v1: v1, v2: v2, nans: int32(nans)}
		if i1 >= 0 {
			s.id1 += int32(c)
		}
		if i2 >= 0 {
			s.id2 += int32(c)
		}
	}
	for _, v := range x[n:] {
		if v != v {
			s.nans++
		}
	}
	if o.hash {
		s.hash = w.set.HashSegment(x)
	}
	return s
}

// merge folds the segments of row r in order.
func (o *statsOp) merge(r int, all []segment) {
	inf := float32(math.Inf(-1))
	best := segment{id1: -1, id2: -1, v1: inf, v2: inf}
	hash := kernels.HashStart
	for i := range all {
		s := &all[i]
		best.offer(s.id1, s.v1)
		best.offer(s.id2, s.v2)
		best.nans += s.nans
		hash = kernels.FoldHash(hash, s.hash)
	}
	if !o.hash {
		hash = 0
	}
	best.fill()
	d := unsafe.Slice((*int32)(o.dst.row(r)), kernels.StatCols)
	clear(d)
	d[kernels.StatTop1], d[kernels.StatTop2] = best.id1, best.id2
	d[kernels.StatLogit1], d[kernels.StatLogit2] = int32(math.Float32bits(best.v1)), int32(math.Float32bits(best.v2))
	d[kernels.StatHashLo], d[kernels.StatHashHi] = int32(uint32(hash)), int32(uint32(hash>>32))
	d[kernels.StatNaNs] = best.nans
}

// fill gives the ids of NaN logits, which sort below all numbers, to places that
// no number has taken.
func (s *segment) fill() {
	if s.id1 < 0 {
		s.id1, s.v1 = 0, float32(math.NaN())
	}
	if s.id2 < 0 {
		s.id2, s.v2 = 0, float32(math.NaN())
		if s.id1 == 0 {
			s.id2 = 1
		}
	}
}

// offer considers a candidate whose id is above those seen, save when it comes
// second from a segment whose first was refused.
func (s *segment) offer(id int32, v float32) {
	switch {
	case id < 0:
	case s.id1 < 0 || v > s.v1:
		s.id2, s.v2 = s.id1, s.v1
		s.id1, s.v1 = id, v
	case s.id2 < 0 || v > s.v2:
		s.id2, s.v2 = id, v
	}
}
