package cpu

import (
	"exacta.dev/exacta/kernels"
)

// moveOp is a Write (from the list's bytes) or a Read (to memory of the host).
type moveOp struct {
	v        view
	read     []byte
	from, to int
}

// Write copies src to dst when it runs; src is copied into the list at once.
func (q *queue) Write(dst kernels.Buf, src []byte) {
	const op = "write"
	if q.off() {
		return
	}
	v := q.view(op, "dst", dst)
	switch {
	case q.off():
		return
	case q.capturing:
		q.bad("write: not allowed in a captured program")
		return
	case len(src) != dst.Bytes():
		q.bad("write: %d bytes for a %s view [%d, %d] of %d", len(src), dst.Kind, dst.Rows, dst.Cols, dst.Bytes())
		return
	}
	from := len(q.list.bytes)
	q.list.bytes = append(q.list.bytes, src...)
	q.pushMove(moveOp{v: v, from: from, to: len(q.list.bytes)})
}

func (q *queue) pushMove(o moveOp) {
	q.list.moves = append(q.list.moves, o)
	q.push(opMove, true, len(q.list.moves)-1)
}

// Read copies src to dst when it runs.
func (q *queue) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	const op = "read"
	if q.off() {
		return kernels.Ticket{Q: q, Seq: q.recorded}
	}
	v := q.view(op, "src", src)
	switch {
	case q.off():
	case q.capturing:
		q.bad("read: not allowed in a captured program")
	case len(dst) != src.Bytes():
		q.bad("read: a %s view [%d, %d] of %d bytes into %d", src.Kind, src.Rows, src.Cols, src.Bytes(), len(dst))
	default:
		q.pushMove(moveOp{v: v, read: dst})
	}
	return kernels.Ticket{Q: q, Seq: q.recorded}
}

func (w *worker) move(o *moveOp, staged []byte) {
	line := o.v.cols * o.v.kind.Size()
	for r := range o.v.rows {
		if o.read != nil {
			copy(o.read[r*line:(r+1)*line], o.v.bytes(r))
		} else {
			copy(o.v.bytes(r), staged[o.from+r*line:][:line])
		}
	}
}
