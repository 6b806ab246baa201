package fakedev

import (
	"errors"
	"fmt"
	"sync/atomic"

	"exacta.dev/exacta/kernels"
)

// Poison fills the destination of a Read until the data arrives. Freed fills a
// buffer that was freed: NaN in both float kinds, -1 in I32.
const (
	Poison = 0xa5
	Freed  = 0xff
)

// protector is what a wrapped backend may offer: with on, every access to its
// memory faults until the next call without.
type protector interface {
	Protect(on bool) error
}

// handles numbers everything that any fake device gives out, far from the small
// numbers that other backends use.
var handles atomic.Uint32

func newHandle() uint32 { return 0x6d000000 + 7*handles.Add(1) }

// Backend is the pretended device. It is a [kernels.Backend].
type Backend struct {
	inner   kernels.Backend
	guard   protector // nil if inner can't protect
	bufs    map[uint32]kernels.Buf
	weights map[uint32]kernels.Weight
	caches  map[uint32]*caches
	q       *queue
	capture *capture // the capture that is going on
	budget  int64    // of bytes; 0 is none
	closed  bool
}

var _ kernels.Backend = (*Backend)(nil)

// New wraps a backend, which from then on belongs to the device: it must not be
// used directly, and Close closes it.
func New(inner kernels.Backend) *Backend {
	be := &Backend{
		inner:   inner,
		bufs:    map[uint32]kernels.Buf{},
		weights: map[uint32]kernels.Weight{},
		caches:  map[uint32]*caches{},
	}
	be.guard, _ = inner.(protector)
	be.q = newQueue(be)
	return be
}

// Info describes the device: the wrapped backend's figures, and Graphs, so that
// callers take their captured paths.
func (be *Backend) Info() kernels.Info {
	info := be.inner.Info()
	info.Name = "fakedev(" + info.Name + ")"
	info.Graphs = true
	return info
}

// open runs f with the wrapped backend's memory accessible.
func (be *Backend) open(f func() error) (err error) {
	if be.guard == nil {
		return f()
	}
	if err := be.guard.Protect(false); err != nil {
		return fmt.Errorf("open the device's memory: %w", err)
	}
	defer func() {
		if e := be.guard.Protect(true); e != nil {
			err = errors.Join(err, fmt.Errorf("close the device's memory: %w", e))
		}
	}()
	return f()
}

// Budget lets the device have so many bytes in all: allocations and caches beyond
// that are refused with kernels.ErrOutOfMemory. 0 is no bound.
func (be *Backend) Budget(bytes int64) { be.budget = bytes }

// within refuses what has just been allocated if it is beyond the budget, and frees it.
func (be *Backend) within(free func() error) error {
	held := be.inner.Memory().Total()
	if be.budget == 0 || held <= be.budget {
		return nil
	}
	return errors.Join(fmt.Errorf("%w: %d bytes would be held of a budget of %d", kernels.ErrOutOfMemory, held, be.budget), free())
}

// usable refuses to hand out memory while a program is captured or after Close.
func (be *Backend) usable(what string) error {
	if be.closed {
		return fmt.Errorf("%s: the device is closed", what)
	}
	if be.capture != nil {
		err := fmt.Errorf("%s: not allowed while a program is captured", what)
		be.capture.Fail(err)
		return err
	}
	return nil
}

// Load takes a parameter in.
func (be *Backend) Load(t kernels.Tensor) (kernels.Weight, error) {
	if err := be.usable("load " + t.Name); err != nil {
		return kernels.Weight{}, err
	}
	var w kernels.Weight
	if err := be.open(func() (err error) { w, err = be.inner.Load(t); return }); err != nil {
		return kernels.Weight{}, err
	}
	id := newHandle()
	be.weights[id] = w
	return kernels.Weight{ID: id}, nil
}

// Alloc returns a zeroed buffer.
func (be *Backend) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	if err := be.usable("alloc"); err != nil {
		return kernels.Buf{}, err
	}
	var b kernels.Buf
	if err := be.open(func() (err error) {
		if b, err = be.inner.Alloc(p, k, rows, cols); err != nil {
			return err
		}
		return be.within(func() error { be.inner.Free(b); return nil })
	}); err != nil {
		return kernels.Buf{}, err
	}
	return be.adopt(b), nil
}

// adopt gives a buffer of the wrapped backend a handle of the device.
func (be *Backend) adopt(b kernels.Buf) kernels.Buf {
	id := newHandle()
	be.bufs[id] = b
	return kernels.Buf{ID: id, Rows: b.Rows, Cols: b.Cols, Kind: b.Kind}
}

// Free runs everything recorded, overwrites the buffer with Freed and returns it
// to the wrapped backend. A handle that is not alive is ignored.
func (be *Backend) Free(b kernels.Buf) {
	inner, ok := be.bufs[b.ID]
	if !ok || be.usable("free") != nil {
		return
	}
	be.q.execute(be.q.recorded())
	delete(be.bufs, b.ID)
	be.q.keep(be.open(func() error {
		var err error
		if be.q.err == nil {
			fill := make([]byte, inner.Bytes())
			for i := range fill {
				fill[i] = Freed
			}
			be.inner.Queue().Write(inner, fill)
			err = be.inner.Queue().Err()
		}
		be.inner.Free(inner)
		return err
	}))
}

// Caches allocates the caches of an engine.
func (be *Backend) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	if err := be.usable("caches"); err != nil {
		return nil, err
	}
	c := &caches{be: be, id: newHandle()}
	if err := be.open(func() (err error) {
		if c.inner, err = be.inner.Caches(spec); err != nil {
			return err
		}
		return be.within(c.inner.Close)
	}); err != nil {
		return nil, err
	}
	c.length = be.adopt(c.inner.Len())
	be.caches[c.id] = c
	return c, nil
}

// Queue returns the device's queue.
func (be *Backend) Queue() kernels.Queue { return be.q }

// Work runs everything recorded and returns the wrapped backend's counters.
func (be *Backend) Work() kernels.Counters {
	be.q.waits++
	be.q.execute(be.q.recorded())
	var c kernels.Counters
	be.q.keep(be.open(func() error { c = be.inner.Work(); return nil }))
	return c
}

// Memory returns what the wrapped backend holds.
func (be *Backend) Memory() kernels.Memory { return be.inner.Memory() }

// Close runs everything recorded and closes the wrapped backend.
func (be *Backend) Close() error {
	if be.closed {
		return nil
	}
	be.q.execute(be.q.recorded())
	be.closed = true
	clear(be.bufs)
	clear(be.weights)
	clear(be.caches)
	be.q.programs = map[uint32]program{}
	if be.guard != nil {
		if err := be.guard.Protect(false); err != nil {
			return fmt.Errorf("open the device's memory: %w", err)
		}
	}
	return be.inner.Close()
}
