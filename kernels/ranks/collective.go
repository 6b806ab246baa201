package ranks

import (
	"encoding/binary"
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

// matmul checks a product as a whole: each rank sees only its part.
func (be *Backend) matmul(dst kernels.Buf, h kernels.Weight, x kernels.Buf, l *kernels.Linear) (*weight, error) {
	w, err := be.weight("matmul", h, kernels.Matrix)
	if err != nil {
		return nil, err
	}
	n := int32(w.outputs())
	res := l.Residual
	switch {
	case l.Act > kernels.SwiGLU:
		err = fmt.Errorf("unknown activation %d", l.Act)
	case (l.Act == kernels.SwiGLU) != w.paired:
		err = errors.New("SwiGLU goes with a paired weight, and a paired weight with SwiGLU")
	case int(x.Cols) != w.cols:
		err = fmt.Errorf("x has %d columns, the weight [%d, %d]", x.Cols, w.rows, w.cols)
	case dst.Cols != n || dst.Kind == kernels.I32:
		err = fmt.Errorf("dst is %s with %d columns, want bf16 or f32 with %d", dst.Kind, dst.Cols, n)
	case dst.Rows > x.Rows:
		err = fmt.Errorf("dst has %d rows, x %d", dst.Rows, x.Rows)
	case !res.None() && (res.Rows < dst.Rows || res.Cols != n || res.Kind == kernels.I32):
		err = fmt.Errorf("residual is %s [%d, %d], dst [%d, %d]", res.Kind, res.Rows, res.Cols, dst.Rows, n)
	case dst.ID == x.ID && overlap(dst, x):
		err = errors.New("dst and x overlap")
	case !l.Bias.None():
		err = be.bias(l, int(n))
	}
	if err != nil {
		return nil, fmt.Errorf("matmul %s: %w", w.name, err)
	}
	return w, nil
}

// bias checks a bias as a whole.
func (be *Backend) bias(l *kernels.Linear, cols int) error {
	w, err := be.weight("bias", l.Bias, kernels.Vector)
	switch {
	case err != nil:
		return err
	case l.Act == kernels.SwiGLU:
		return errors.New("SwiGLU has no bias")
	case l.BiasFrom < 0 || l.BiasFrom+cols > w.rows*w.cols:
		return fmt.Errorf("bias %s has %d elements, columns %d+%d were asked for", w.name, w.rows*w.cols, l.BiasFrom, cols)
	}
	return nil
}

func overlap(a, b kernels.Buf) bool {
	return a.Row < b.Row+b.Rows && b.Row < a.Row+a.Rows && a.Col < b.Col+b.Cols && b.Col < a.Col+a.Cols
}

// MatMul computes this rank's columns of dst and gathers the others'.
func (q *queue) MatMul(dst kernels.Buf, h kernels.Weight, x kernels.Buf, l kernels.Linear) {
	if q.err != nil {
		return
	}
	be := q.be
	w, err := be.matmul(dst, h, x, &l)
	if err != nil {
		q.refuse(err)
		return
	}
	if dst.Rows == 0 {
		return
	}
	if from, to := w.share(be.rank); from < to {
		l.In, l.Bias = be.norm(l.In), be.replica(l.Bias)
		l.BiasFrom += from
		if !l.Residual.None() {
			l.Residual = l.Residual.Columns(from, to)
		}
		q.in.MatMul(dst.Columns(from, to), w.inner, x, l)
	}
	q.columns("matmul", w, dst, uint64(dst.Rows))
}

// columns brings the other ranks' columns of dst, the result of a product of rows
// rows whose own columns have been recorded.
func (q *queue) columns(op string, w *weight, dst kernels.Buf, rows uint64) {
	be := q.be
	slab := &be.slab[be.met&1]
	*slab = (*slab)[:0]
	if from, to := w.share(be.rank); from < to {
		if !q.fetch(slab, dst.Columns(from, to)) {
			return
		}
	} else {
		be.skipped += rows
	}
	own := be.inner.Work()
	turn, err := be.meet(place{op: op, what: w.name, rows: dst.Rows, cols: dst.Cols, kind: dst.Kind},
		parcel{data: *slab, macs: own.MACs, weightBytes: own.WeightBytes})
	if err != nil {
		return
	}
	q.ops++
	be.macs, be.weightBytes = 0, 0
	for r := range be.g.seats {
		p := &be.g.seats[r].parcels[turn]
		be.macs += p.macs
		be.weightBytes += p.weightBytes
		if from, to := w.share(r); r != be.rank && from < to {
			q.in.Write(dst.Columns(from, to), p.data)
		}
	}
}

// fetch runs everything recorded and brings a view to *buf, which grows.
func (q *queue) fetch(buf *[]byte, b kernels.Buf) bool {
	*buf = grow(*buf, b.Bytes())
	q.stick(q.in.WaitFor(q.in.Read(*buf, b).Seq))
	return q.err == nil
}

// embed checks a lookup as a whole.
func (be *Backend) embed(dst kernels.Buf, h kernels.Weight, ids kernels.Buf) (*weight, error) {
	w, err := be.weight("embed", h, kernels.Matrix)
	if err != nil {
		return nil, err
	}
	switch {
	case w.paired:
		err = errors.New("a paired weight is no table")
	case int(dst.Cols) != w.cols || dst.Kind != kernels.BF16:
		err = fmt.Errorf("dst is %s with %d columns, want bf16 with %d", dst.Kind, dst.Cols, w.cols)
	case ids.Kind != kernels.I32 || ids.Rows < dst.Rows || ids.Cols < 1:
		err = fmt.Errorf("ids is %s [%d, %d], want i32 [%d, 1]", ids.Kind, ids.Rows, ids.Cols, dst.Rows)
	}
	if err != nil {
		return nil, fmt.Errorf("embed %s: %w", w.name, err)
	}
	return w, nil
}

// Embed looks up the ids whose rows this rank keeps and gathers the others'.
func (q *queue) Embed(dst kernels.Buf, h kernels.Weight, ids kernels.Buf) {
	if q.err != nil {
		return
	}
	be := q.be
	w, err := be.embed(dst, h, ids)
	if err != nil {
		q.refuse(err)
		return
	}
	n := int(dst.Rows)
	if n == 0 || !q.ids(w, ids.Top(n).Columns(0, 1)) {
		return
	}
	slab := &be.slab[be.met&1]
	*slab = (*slab)[:0]
	if from, to := w.share(be.rank); from < to {
		q.lookup(dst, w, from, to)
		if !q.fetch(slab, dst) {
			return
		}
	}
	turn, err := be.meet(place{op: "embed", what: w.name, rows: dst.Rows, cols: dst.Cols, kind: dst.Kind}, parcel{data: *slab})
	if err != nil {
		return
	}
	q.ops++
	line := w.cols * kernels.BF16.Size()
	be.rows = grow(be.rows, n*line)
	for i, id := range be.wanted {
		copy(be.rows[i*line:(i+1)*line], be.g.seats[w.owner(int(id))].parcels[turn].data[i*line:])
	}
	q.in.Write(dst, be.rows)
}

// ids brings the wanted ids to the host.
func (q *queue) ids(w *weight, ids kernels.Buf) bool {
	be := q.be
	if !q.fetch(&be.rows, ids) {
		return false
	}
	be.wanted = be.wanted[:0]
	for i := range int(ids.Rows) {
		id := int32(binary.LittleEndian.Uint32(be.rows[4*i:]))
		if id < 0 || int(id) >= w.rows {
			q.stick(fmt.Errorf("embed: row %d has id %d, %s has rows 0 to %d", i, id, w.name, w.rows-1))
			return false
		}
		be.wanted = append(be.wanted, id)
	}
	return true
}

// lookup fills dst with this rank's rows; where another rank has the row, it
// looks up any.
func (q *queue) lookup(dst kernels.Buf, w *weight, from, to int) {
	be := q.be
	for at := 0; at < len(be.wanted); at += lookup {
		end := min(at+lookup, len(be.wanted))
		be.rows = grow(be.rows, 4*(end-at))
		for i, id := range be.wanted[at:end] {
			mine := uint32(0)
			if from <= int(id) && int(id) < to {
				mine = uint32(int(id) - from)
			}
			binary.LittleEndian.PutUint32(be.rows[4*i:], mine)
		}
		ids := be.ids.Top(end - at)
		q.in.Write(ids, be.rows)
		q.in.Embed(dst.Slice(at, end), w.inner, ids)
	}
}

// grow returns b with length n, in new memory if it must.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}
