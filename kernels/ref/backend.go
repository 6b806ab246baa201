package ref

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"exacta.dev/exacta/kernels"
)

// Backend computes in float64. It is a [kernels.Backend]; its methods are
// called from one goroutine at a time.
type Backend struct {
	bufs    map[uint32]*buffer
	weights map[uint32]*weight
	caches  map[uint32]*caches
	q       *queue
	work    kernels.Counters
	mem     kernels.Memory
	closed  bool
	touched []*buffer // resolved since the last build began
}

var _ kernels.Backend = (*Backend)(nil)

// handles numbers everything that any ref backend gives out, so that a handle
// of one backend means nothing to another.
var handles atomic.Uint32

// New returns an empty backend.
func New() *Backend {
	be := &Backend{
		bufs:    map[uint32]*buffer{},
		weights: map[uint32]*weight{},
		caches:  map[uint32]*caches{},
	}
	be.q = newQueue(be)
	return be
}

// Info describes the backend.
func (be *Backend) Info() kernels.Info {
	return kernels.Info{
		Name: "ref", Device: runtime.GOARCH, Kernels: "float64", Threads: workers,
		Arithmetic: "ref-float64-1",
	}
}

// Load reads a parameter into float64, with the values of the file. The error
// names the tensor and its part.
func (be *Backend) Load(t kernels.Tensor) (kernels.Weight, error) {
	if err := be.usable("load " + t.Name); err != nil {
		return kernels.Weight{}, err
	}
	if err := t.Check(); err != nil {
		return kernels.Weight{}, err
	}
	w, err := readWeight(t)
	if err != nil {
		return kernels.Weight{}, err
	}
	id := handles.Add(1)
	be.weights[id] = w
	be.mem[kernels.Weights] += w.bytes()
	return kernels.Weight{ID: id}, nil
}

// Alloc returns a zeroed buffer of rows x cols elements, both positive.
func (be *Backend) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	if err := be.usable("alloc"); err != nil {
		return kernels.Buf{}, err
	}
	switch {
	case rows <= 0 || cols <= 0 || rows > 1<<31-1 || cols > 1<<31-1:
		return kernels.Buf{}, fmt.Errorf("alloc: shape [%d, %d]; dimensions must be positive and fit 31 bits", rows, cols)
	case p >= kernels.NumPurposes:
		return kernels.Buf{}, fmt.Errorf("alloc: unknown purpose %d", p)
	case k != kernels.BF16 && k != kernels.F32 && k != kernels.I32:
		return kernels.Buf{}, fmt.Errorf("alloc: unknown kind %d", k)
	}
	return be.adopt(newBuffer(p, k, rows, cols)), nil
}

// adopt registers a buffer and returns the view of all of it.
func (be *Backend) adopt(b *buffer) kernels.Buf {
	id := handles.Add(1)
	be.bufs[id] = b
	be.mem[b.purpose] += b.bytes()
	return kernels.Buf{ID: id, Rows: int32(b.rows), Cols: int32(b.cols), Kind: b.kind}
}

// Free runs what is recorded and forgets the buffer. A handle that is not alive
// is ignored.
func (be *Backend) Free(b kernels.Buf) {
	buf, ok := be.bufs[b.ID]
	if !ok {
		return
	}
	be.q.flush(be.q.recorded())
	buf.dead = true
	delete(be.bufs, b.ID)
	be.mem[buf.purpose] -= buf.bytes()
}

// Caches allocates the caches of an engine.
func (be *Backend) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	if err := be.usable("caches"); err != nil {
		return nil, err
	}
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	c := newCaches(be, spec)
	be.caches[c.id] = c
	return c, nil
}

// Queue returns the backend's queue.
func (be *Backend) Queue() kernels.Queue { return be.q }

// Work runs what is recorded and returns the counters.
func (be *Backend) Work() kernels.Counters {
	be.q.flush(be.q.recorded())
	return be.work
}

// Memory returns the bytes held: eight for each element of BF16 and F32.
func (be *Backend) Memory() kernels.Memory { return be.mem }

// Close forgets everything; later calls return errors.
func (be *Backend) Close() error {
	if be.closed {
		return nil
	}
	be.q.flush(be.q.recorded())
	be.q.programs = map[uint32]program{}
	be.closed = true
	for _, b := range be.bufs {
		b.dead = true
	}
	clear(be.bufs)
	clear(be.weights)
	clear(be.caches)
	be.mem = kernels.Memory{}
	return nil
}

// usable refuses to hand out memory while a program is captured or after Close.
func (be *Backend) usable(what string) error {
	switch {
	case be.closed:
		return fmt.Errorf("%s: the ref backend is closed", what)
	case be.q.capturing:
		return fmt.Errorf("%s: not allowed while a program is captured", what)
	}
	return nil
}
