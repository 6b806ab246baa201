package cpu

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
)

const (
	longList  = 8192     // operations after which a list is run unasked
	longBytes = 32 << 20 // staged bytes likewise
)

// queue records operations and runs them when they are waited for.
type queue struct {
	b         *Backend
	main      list
	list      *list // main, or a program's while it is captured
	programs  []*program
	recorded  uint64
	ran       uint64
	capturing bool
	err       error // sticky: of an operation that ran
	late      error // of recording; becomes err after what was recorded before
}

var _ kernels.Queue = (*queue)(nil)

// off reports whether recording has stopped.
func (q *queue) off() bool { return q.err != nil || q.late != nil }

// bad records a misuse; it takes effect after what has been recorded so far.
func (q *queue) bad(format string, args ...any) {
	if q.late == nil {
		q.late = fmt.Errorf("cpu: "+format, args...)
	}
}

// stick makes err the queue's error now, unless there is one.
func (q *queue) stick(err error) {
	if q.err == nil {
		q.err = err
	}
}

// push appends an operation to the list and runs the list when it is long.
func (q *queue) push(kind opKind, solo bool, i int) {
	l := q.list
	l.refs = append(l.refs, ref{kind: kind, solo: solo, i: int32(i)})
	if q.capturing {
		return
	}
	q.recorded++
	if len(l.refs) >= longList || len(l.bytes) >= longBytes {
		q.flush()
	}
}

func (q *queue) require(n needs) { q.list.need = q.list.need.or(n) }

// flush runs what is recorded.
func (q *queue) flush() {
	l := &q.main
	if len(l.refs) > 0 && q.err == nil {
		q.b.mem.open()
		err := q.b.fit(l.need)
		if err == nil {
			err = q.b.pool.run(l)
		}
		q.b.mem.shut()
		if err != nil {
			q.stick(err)
		}
	}
	if q.late != nil && !q.capturing {
		q.stick(q.late)
		q.late = nil
	}
	q.ran = q.recorded
	l.reset()
}

// WaitFor runs everything recorded if operation seq has not run yet.
func (q *queue) WaitFor(seq uint64) error {
	if q.ran < seq || q.late != nil {
		q.flush()
	}
	return q.err
}

// Err runs everything recorded and returns the sticky error.
func (q *queue) Err() error {
	q.flush()
	return q.err
}

// Capture records body as a program. An operation that does not fit is its
// error, and the queue goes on.
func (q *queue) Capture(key kernels.GraphKey, body func(kernels.Queue)) (kernels.Program, error) {
	switch {
	case q.capturing:
		return kernels.Program{}, errors.New("cpu: capture inside a capture")
	case q.b.closed:
		return kernels.Program{}, errClosed
	case q.off():
		return kernels.Program{}, q.Err()
	}
	p := &program{key: key}
	q.list, q.capturing = &p.list, true
	body(q)
	err := q.late
	q.list, q.capturing, q.late = &q.main, false, nil
	if err != nil {
		return kernels.Program{}, fmt.Errorf("capture %s (%d spans, %d rows): %w", key.Name, key.Spans, key.Rows, err)
	}
	q.programs = append(q.programs, p)
	return kernels.Program{ID: uint32(len(q.programs))}, nil
}

// Run appends a captured program by reference.
func (q *queue) Run(p kernels.Program) {
	if q.off() {
		return
	}
	if p.ID == 0 || int(p.ID) > len(q.programs) {
		q.bad("run: there is no program %d", p.ID)
		return
	}
	l := &q.programs[p.ID-1].list
	if len(l.refs) == 0 {
		return
	}
	if !l.whole(q.b) {
		q.bad("run: %s uses memory that has been freed", q.programs[p.ID-1].key.Name)
		return
	}
	q.require(l.need)
	q.list.programs = append(q.list.programs, l)
	q.push(opRun, false, len(q.list.programs)-1)
}

// view resolves a handle.
func (q *queue) view(op, name string, b kernels.Buf) view {
	if b.ID == 0 || int(b.ID) > len(q.b.bufs) {
		q.bad("%s: %s is not a buffer (id %d)", op, name, b.ID)
		return view{}
	}
	x := &q.b.bufs[b.ID-1]
	if !x.live {
		q.bad("%s: %s has been freed", op, name)
		return view{}
	}
	if b.Kind != x.kind || b.Row < 0 || b.Col < 0 || b.Rows < 0 || b.Cols < 0 ||
		int(b.Row)+int(b.Rows) > x.rows || int(b.Col)+int(b.Cols) > x.cols {
		q.bad("%s: %s is a %s view [%d+%d, %d+%d] of a %s buffer [%d, %d]", op, name, b.Kind, b.Row, b.Rows, b.Col, b.Cols, x.kind, x.rows, x.cols)
		return view{}
	}
	if q.capturing {
		q.list.use(&q.list.bufs, b.ID)
	}
	v := view{p: x.mem.ptr(), stride: x.stride, rows: int(b.Rows), cols: int(b.Cols), kind: b.Kind}
	v.p = v.row(int(b.Row))
	v.p = addBytes(v.p, int(b.Col)*b.Kind.Size())
	return v
}

// typed resolves a handle of a given kind.
func (q *queue) typed(op, name string, b kernels.Buf, k kernels.Kind) view {
	v := q.view(op, name, b)
	if !v.none() && v.kind != k {
		q.bad("%s: %s is %s, want %s", op, name, v.kind, k)
	}
	return v
}

// shaped resolves a handle of a given kind and shape.
func (q *queue) shaped(op, name string, b kernels.Buf, k kernels.Kind, rows, cols int) view {
	v := q.typed(op, name, b, k)
	if !v.none() && (v.rows != rows || v.cols != cols) {
		q.bad("%s: %s is [%d, %d], want [%d, %d]", op, name, v.rows, v.cols, rows, cols)
	}
	return v
}

// column resolves an I32 table of at least rows rows.
func (q *queue) column(op, name string, b kernels.Buf, rows int) view {
	v := q.typed(op, name, b, kernels.I32)
	if !v.none() && (v.rows < rows || v.cols < 1) {
		q.bad("%s: %s is [%d, %d], want [%d, 1]", op, name, v.rows, v.cols, rows)
	}
	return v
}

// batch resolves the tables of a batch.
func (q *queue) batch(op string, b *kernels.Batch) tables {
	if b == nil {
		q.bad("%s: no batch", op)
		return tables{}
	}
	return tables{
		seq: q.column(op, "seq", b.Seq, b.Spans), start: q.column(op, "start", b.Start, b.Spans),
		length: q.column(op, "len", b.Len, b.Spans), rowOff: q.column(op, "row_off", b.RowOff, b.Spans),
		token: q.column(op, "token", b.Token, b.Rows), pos: q.column(op, "pos", b.Pos, b.Rows),
		parent: q.column(op, "parent", b.Parent, b.Rows), span: q.column(op, "span", b.Span, b.Rows),
		logit: q.column(op, "logit", b.Logit, b.LogitRows),
		spans: b.Spans, rows: b.Rows, logits: b.LogitRows, maxLen: b.MaxLen,
	}
}
