//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"time"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// profile brackets the operations of a pass with events.
type profile struct {
	ops    []opID
	events []driver.Event // one in front of all, then two for each operation
	err    error
}

func (p *profile) mark(q *queue) {
	e, err := q.be.ctx.NewTimedEvent()
	if err == nil {
		p.events = append(p.events, e)
		err = q.stream.Record(e)
	}
	p.err = errors.Join(p.err, err)
}

// aheadBytes and aheadCopies keep the device busy while the operations are recorded,
// so that none waits for the host.
const (
	aheadBytes  = 256 << 20
	aheadCopies = 128
)

// Profile runs the operations that body records, each between two events, and returns
// their times in order. The device is kept busy until all are recorded.
func (be *Backend) Profile(body func(kernels.Queue)) (_ []kernels.OpTime, err error) {
	if err := be.usable("profile"); err != nil {
		return nil, err
	}
	pad, err := be.zeroed(kernels.Activations, 2*aheadBytes, 0)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, be.release(pad)) }()
	if err := be.Trace(true); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, be.Trace(false)) }()
	if err := be.enter(); err != nil {
		return nil, err
	}
	defer be.leave()
	for range aheadCopies {
		if err := be.q.stream.Copy2D(pad.at(aheadBytes), aheadBytes, pad.ptr, aheadBytes, aheadBytes, 1); err != nil {
			return nil, err
		}
	}
	body(be.q)
	return be.Traced()
}

// Trace implements kernels.Traced.
func (be *Backend) Trace(on bool) error {
	if err := be.usable("trace"); err != nil {
		return err
	}
	err := be.q.Err()
	if p := be.q.profile; p != nil {
		be.q.profile = nil
		err = errors.Join(err, be.drop(p))
	}
	if err != nil || !on {
		return err
	}
	return be.begin(&profile{})
}

// drop frees the events of a profile.
func (be *Backend) drop(p *profile) (err error) {
	if err := be.enter(); err != nil {
		return err
	}
	defer be.leave()
	for _, e := range p.events {
		err = errors.Join(err, be.ctx.FreeEvent(e))
	}
	return err
}

// begin puts the first event of a profile on the idle stream.
func (be *Backend) begin(p *profile) error {
	if err := be.enter(); err != nil {
		return err
	}
	defer be.leave()
	be.q.profile = p
	p.mark(be.q)
	err := errors.Join(p.err, be.q.stream.Synchronize())
	return err
}

// Traced implements kernels.Traced.
func (be *Backend) Traced() (out []kernels.OpTime, err error) {
	p := be.q.profile
	if p == nil {
		return nil, errors.New("traced: nothing was")
	}
	be.q.profile = nil
	err = errors.Join(p.err, be.q.Err())
	if e := be.enter(); e != nil {
		return nil, e
	}
	defer be.leave()
	for i, op := range p.ops {
		var at, took time.Duration
		if err == nil {
			at, err = be.ctx.Elapsed(p.events[0], p.events[1+2*i])
		}
		if err == nil {
			took, err = be.ctx.Elapsed(p.events[1+2*i], p.events[2+2*i])
		}
		out = append(out, kernels.OpTime{Name: op.String(), At: at, Took: took})
	}
	return out, errors.Join(err, be.drop(p), be.begin(&profile{}))
}

// CopyRate measures the device's own copies, in bytes per second read and written.
func (be *Backend) CopyRate() (float64, error) {
	if err := be.usable("copy rate"); err != nil {
		return 0, err
	}
	const n, times = 1 << 30, 16
	pad, err := be.zeroed(kernels.Activations, 2*n, 0x5a)
	if err != nil {
		return 0, fmt.Errorf("copy rate: %w", err)
	}
	best := time.Duration(0)
	for range 4 {
		took, err := be.copies(pad, n, times)
		if err != nil {
			return 0, errors.Join(err, be.release(pad))
		}
		if best == 0 || took < best {
			best = took
		}
	}
	return 2 * n * times / best.Seconds(), be.release(pad)
}

func (be *Backend) copies(pad block, n int64, times int) (time.Duration, error) {
	if err := be.enter(); err != nil {
		return 0, err
	}
	defer be.leave()
	if err := be.q.stream.Synchronize(); err != nil {
		return 0, err
	}
	begin := time.Now()
	for range times {
		if err := be.q.stream.Copy2D(pad.at(n), n, pad.ptr, n, n, 1); err != nil {
			return 0, err
		}
	}
	err := be.q.stream.Synchronize()
	return time.Since(begin), err
}
