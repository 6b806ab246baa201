//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"

	"exacta.dev/exacta/kernels/cuda/driver"
)

// stage is pinned memory in two halves through which bytes pass between host and
// device. One half fills while copies out of or into the other finish.
type stage struct {
	mem  *driver.HostMemory
	half int64
	cur  int64 // half in use
	at   int64 // first free byte of it
	done [2]driver.Event
	used [2]bool // done has been recorded
	// waits counts how often a half was waited for.
	waits int
}

func (g *stage) open(ctx *driver.Context, n int64) error {
	var err error
	g.half = n / 2
	for i := range g.done {
		if g.done[i], err = ctx.NewEvent(); err != nil {
			return err
		}
	}
	g.mem, err = ctx.AllocHost(n)
	return err
}

// most is the largest piece that reserve gives.
func (g *stage) most() int64 { return g.half }

// reserve returns the offset of n free bytes, at most most(). turned is called
// when a half is entered again, after the copies that used it.
func (g *stage) reserve(s *driver.Stream, n int64, turned func(half int64)) (int64, error) {
	const align = 256
	g.at = (g.at + align - 1) &^ (align - 1)
	if g.at+n > g.half {
		if err := s.Record(g.done[g.cur]); err != nil {
			return 0, err
		}
		g.used[g.cur] = true
		g.cur ^= 1
		g.at = 0
		if g.used[g.cur] {
			g.waits++
			if err := s.Wait(g.done[g.cur]); err != nil {
				return 0, err
			}
		}
		if turned != nil {
			turned(g.cur)
		}
	}
	off := g.cur*g.half + g.at
	g.at += n
	return off, nil
}

// bytes returns n bytes at an offset of reserve.
func (g *stage) bytes(off, n int64) []byte { return g.mem.Bytes[off : off+n] }

// dev returns the device's address of an offset.
func (g *stage) dev(off int64) driver.Ptr { return g.mem.Dev + driver.Ptr(off) }

func (g *stage) close(ctx *driver.Context) error {
	var errs []error
	for _, e := range g.done {
		if e != (driver.Event{}) {
			errs = append(errs, ctx.FreeEvent(e))
		}
	}
	if g.mem != nil {
		errs = append(errs, ctx.FreeHost(g.mem))
	}
	return errors.Join(errs...)
}

// landing is a piece of a read on its way to the caller.
type landing struct {
	seq  uint64
	dst  []byte
	off  int64
	half int64
}

// ticketEvents is how many reads can be told apart by waiting; an older one
// waits for the oldest of these.
const ticketEvents = 64

// readback is the way from the device to the host: reads land in a stage and are
// delivered to their callers when someone waits, or when the stage turns.
type readback struct {
	stage
	pending []landing
	issued  uint64 // number of the last read
	passed  [ticketEvents]driver.Event
}

func (r *readback) open(ctx *driver.Context, n int64) error {
	var err error
	for i := range r.passed {
		if r.passed[i], err = ctx.NewEvent(); err != nil {
			return err
		}
	}
	return r.stage.open(ctx, n)
}

// deliver hands over the reads up to a number, whose copies have finished.
func (r *readback) deliver(seq uint64) {
	n := 0
	for n < len(r.pending) && r.pending[n].seq <= seq {
		r.hand(n)
		n++
	}
	r.drop(n)
}

// turned hands over what lies in a half that is about to be used again.
func (r *readback) turned(half int64) {
	n := 0
	for n < len(r.pending) && r.pending[n].half == half {
		r.hand(n)
		n++
	}
	r.drop(n)
}

func (r *readback) hand(i int) {
	l := &r.pending[i]
	copy(l.dst, r.bytes(l.off, int64(len(l.dst))))
	l.dst = nil
}

func (r *readback) drop(n int) {
	r.pending = r.pending[:copy(r.pending, r.pending[n:])]
}

func (r *readback) close(ctx *driver.Context) error {
	errs := []error{r.stage.close(ctx)}
	for _, e := range r.passed {
		if e != (driver.Event{}) {
			errs = append(errs, ctx.FreeEvent(e))
		}
	}
	return errors.Join(errs...)
}
