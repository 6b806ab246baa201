//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

var errInCapture = errors.New("not allowed while a program is captured")

// upload passes n bytes, at most the stage's piece, to the device: fill writes
// them to pinned memory.
func (q *queue) upload(dst driver.Ptr, n int64, fill func([]byte) error) error {
	if err := q.be.enter(); err != nil {
		return err
	}
	defer q.be.leave()
	off, err := q.up.reserve(q.stream, n, nil)
	if err != nil {
		return err
	}
	if err := fill(q.up.bytes(off, n)); err != nil {
		return err
	}
	return q.stream.Copy2D(dst, n, q.up.dev(off), n, n, 1)
}

// Write copies src to pinned memory and from there to dst in the queue's order.
func (q *queue) Write(dst kernels.Buf, src []byte) {
	q.do(opWrite, func() {
		o := q.transfer(dst, "dst", len(src))
		if q.bad != nil || len(src) == 0 {
			return
		}
		width := int64(o.cols) * int64(o.size())
		for r := int64(0); r < int64(o.rows); {
			rows := min(int64(o.rows)-r, q.up.most()/width)
			off, err := q.up.reserve(q.stream, rows*width, nil)
			if err != nil {
				q.failWith(err)
				return
			}
			copy(q.up.bytes(off, rows*width), src[r*width:])
			q.failWith(q.stream.Copy2D(o.row(r), o.pitch(), q.up.dev(off), width, width, rows))
			r += rows
		}
	})
}

// Read copies src to pinned memory in the queue's order, and from there to dst
// when its ticket, or a later one, is waited for.
func (q *queue) Read(dst []byte, src kernels.Buf) kernels.Ticket {
	q.do(opRead, func() {
		o := q.transfer(src, "src", len(dst))
		if q.bad != nil {
			return
		}
		d := &q.down
		seq := d.issued + 1
		width := max(1, int64(o.cols)*int64(o.size()))
		for r := int64(0); len(dst) > 0 && r < int64(o.rows); {
			rows := min(int64(o.rows)-r, d.most()/width)
			n := rows * width
			off, err := d.reserve(q.stream, n, d.turned)
			if err != nil {
				q.failWith(err)
				return
			}
			q.failWith(q.stream.Copy2D(d.dev(off), width, o.row(r), o.pitch(), width, rows))
			d.pending = append(d.pending, landing{seq: seq, dst: dst[r*width : r*width+n], off: off, half: d.cur})
			r += rows
		}
		d.issued = seq
		q.failWith(q.stream.Record(d.passed[seq%ticketEvents]))
	})
	return kernels.Ticket{Q: q, Seq: q.down.issued}
}

// transfer resolves the device side of Write or Read, which may not be captured.
func (q *queue) transfer(b kernels.Buf, what string, n int) operand {
	o := q.operand(b, what)
	if q.recording != nil {
		q.failWith(errInCapture)
	}
	if q.bad == nil && n != b.Bytes() {
		q.fail("%d bytes for a view of %d", n, b.Bytes())
	}
	if width := int64(o.cols) * int64(o.size()); q.bad == nil && width > q.down.most() {
		q.fail("rows of %d bytes; at most %d can be copied", width, q.down.most())
	}
	return o
}

// WaitFor waits for the reads up to seq, delivers them and returns the sticky
// error.
func (q *queue) WaitFor(seq uint64) error {
	switch {
	case q.recording != nil || q.be.closed || q.err != nil:
		return q.Err()
	case seq > q.down.issued:
		return fmt.Errorf("wait: read %d of a queue with %d", seq, q.down.issued)
	case seq == 0:
		return nil
	}
	err := q.be.enter()
	defer q.be.leave()
	if err == nil {
		q.waits++
		err = q.stream.Wait(q.down.passed[seq%ticketEvents])
	}
	if err == nil {
		q.down.deliver(seq)
		err = q.fault()
	}
	q.settle(err)
	return q.err
}
