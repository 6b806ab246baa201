package fakedev

import (
	"errors"
	"time"

	"exacta.dev/exacta/kernels"
)

var _ kernels.Traced = (*Backend)(nil)

// trace are the operations that were timed.
type trace struct {
	from time.Time
	ops  []kernels.OpTime
}

// timed runs a command, to its end where it is timed.
func (q *queue) timed(c command, inner kernels.Queue) {
	if q.trace == nil {
		c.run(inner)
		return
	}
	begin := time.Now()
	c.run(inner)
	_ = inner.Err() // sticky: execute looks at it
	q.trace.ops = append(q.trace.ops, kernels.OpTime{Name: c.name, At: begin.Sub(q.trace.from), Took: time.Since(begin)})
}

// Trace implements kernels.Traced.
func (be *Backend) Trace(on bool) error {
	err := be.q.Err()
	if be.q.trace = nil; on {
		be.q.trace = &trace{from: time.Now()}
	}
	return err
}

// Traced implements kernels.Traced.
func (be *Backend) Traced() ([]kernels.OpTime, error) {
	err := be.q.Err()
	if be.q.trace == nil {
		return nil, errors.Join(err, errors.New("traced: nothing was"))
	}
	ops := be.q.trace.ops
	be.q.trace = &trace{from: time.Now()}
	return ops, err
}
