//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda/driver"
)

// Backend computes on one GPU. It is a [kernels.Backend]; its methods are called
// from one goroutine at a time, which may move between threads.
type Backend struct {
	driver *driver.Driver
	dev    driver.Device
	ctx    *driver.Context
	arch   int

	modules []*driver.Module
	kernels [numKernels]driver.Function
	mem     allocator
	bufs    map[uint32]*buffer
	weights map[uint32]*weight
	caches  map[uint32]*caches
	q       *queue
	closed  bool
}

var _ kernels.Backend = (*Backend)(nil)

// handles numbers everything that any backend gives out, so that a handle of one
// backend means nothing to another.
var handles atomic.Uint32

// Open opens a GPU: the driver, the device's primary context, the kernels
// (compiled if they are not in the cache) and a stream. The error says what is
// missing: driver, device, compiler, or memory.
func Open(o Options) (*Backend, error) {
	if o.MemoryFraction == 0 {
		o.MemoryFraction = DefaultMemoryFraction
	}
	if !(o.MemoryFraction > 0 && o.MemoryFraction <= 1) {
		return nil, fmt.Errorf("cuda: memory fraction %g; it must be above 0 and at most 1", o.MemoryFraction)
	}
	be := &Backend{
		bufs:    map[uint32]*buffer{},
		weights: map[uint32]*weight{},
		caches:  map[uint32]*caches{},
	}
	if err := be.open(o); err != nil {
		_ = be.Close()
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return be, nil
}

func (be *Backend) open(o Options) error {
	var err error
	if be.driver, err = driver.Open(); err != nil {
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	if be.dev, err = be.driver.Device(o.Device); err != nil {
		return err
	}
	if be.arch, err = architectureOf(be.dev); err != nil {
		return err
	}
	code, err := cubins(be.arch)
	if err != nil {
		return err
	}
	if be.ctx, err = be.driver.Retain(be.dev); err != nil {
		return err
	}
	if err := be.enter(); err != nil {
		return err
	}
	defer be.leave()
	be.mem = newAllocator(be.ctx, be.dev, o.MemoryFraction)
	if err := be.loadKernels(code); err != nil {
		return err
	}
	be.q, err = newQueue(be)
	return err
}

// staticShared bounds the shared memory that the delta kernel declares.
const staticShared = 3 << 10

// sharedLimit is the dynamic shared memory that the delta kernel may use.
func (be *Backend) sharedLimit() int { return be.dev.SharedPerBlock - staticShared }

// allowance is the dynamic shared memory that a kernel may use beyond what all may; 0
// is none.
func (be *Backend) allowance(k kernelID) int {
	switch {
	case k == kDelta:
		return be.sharedLimit()
	case k == kSort:
		return sortShared(maxExperts)
	case k >= kHopper && k <= kHopperLast:
		return be.dev.SharedPerBlock
	case k >= kAttendTiles && k <= kAttendTilesLast:
		return be.dev.SharedPerBlock - sharedReserved
	}
	return 0
}

func (be *Backend) loadKernels(code map[string][]byte) error {
	for _, f := range sourcesFor(be.arch) {
		m, err := be.ctx.Load(f+".cu", code[f])
		if err != nil {
			major, minor, _ := be.driver.Version()
			return fmt.Errorf("%w; the driver is for CUDA %d.%d", err, major, minor)
		}
		be.modules = append(be.modules, m)
		for i, k := range kernelTable {
			if k.file != f {
				continue
			}
			if be.kernels[i], err = m.Function(k.name); err != nil {
				return err
			}
			if n := be.allowance(kernelID(i)); n > 0 {
				if err := m.AllowShared(be.kernels[i], n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// enter takes the calling thread for driver calls; leave gives it back. They
// nest.
func (be *Backend) enter() error {
	runtime.LockOSThread()
	return be.ctx.SetCurrent()
}

func (be *Backend) leave() { runtime.UnlockOSThread() }

// usable refuses to hand out memory while a program is captured or after Close.
func (be *Backend) usable(what string) error {
	switch {
	case be.closed:
		return fmt.Errorf("%s: the cuda backend is closed", what)
	case be.q.recording != nil:
		return fmt.Errorf("%s: not allowed while a program is captured", what)
	}
	return nil
}

// Info describes the backend. Arithmetic names the generation of cards: all that
// run the same cubins give the same bits.
func (be *Backend) Info() kernels.Info {
	set := fmt.Sprintf("sm_%d", be.arch)
	return kernels.Info{
		Name: "cuda", Device: be.dev.Name, Kernels: set,
		Arithmetic: "cuda-" + set + "-bf16-3", Graphs: true,
	}
}

// Alloc returns a zeroed buffer of rows x cols elements, both positive. A buffer
// that does not fit the budget or the GPU is refused with kernels.ErrOutOfMemory.
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
	return be.newBuffer(p, k, rows, cols)
}

func (be *Backend) newBuffer(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	b := &buffer{kind: k, rows: rows, cols: cols}
	var err error
	if b.block, err = be.zeroed(p, int64(rows)*int64(cols)*int64(k.Size()), 0); err != nil {
		return kernels.Buf{}, fmt.Errorf("alloc %s [%d, %d]: %w", k, rows, cols, err)
	}
	id := handles.Add(1)
	be.bufs[id] = b
	return kernels.Buf{ID: id, Rows: int32(rows), Cols: int32(cols), Kind: k}, nil
}

// zeroed takes memory and fills it with a byte.
func (be *Backend) zeroed(p kernels.Purpose, n int64, fill byte) (block, error) {
	if err := be.enter(); err != nil {
		return block{}, err
	}
	defer be.leave()
	m, err := be.mem.take(p, n)
	if err != nil || n == 0 {
		return m, err
	}
	return m, be.q.stream.Fill(m.ptr, fill, n)
}

// release waits for the queue and returns memory.
func (be *Backend) release(blocks ...block) error {
	if err := be.enter(); err != nil {
		return err
	}
	defer be.leave()
	be.q.settle(be.q.drain())
	var errs []error
	for _, b := range blocks {
		errs = append(errs, be.mem.give(b))
	}
	return errors.Join(errs...)
}

// Free waits for the queue and returns the buffer's memory. A handle that is not
// alive is ignored. Programs that use the buffer fail when they are run.
func (be *Backend) Free(b kernels.Buf) {
	buf, ok := be.bufs[b.ID]
	if !ok {
		return
	}
	if err := be.usable("free"); err != nil {
		be.q.settle(err)
		return
	}
	delete(be.bufs, b.ID)
	for _, p := range be.q.programs {
		if p.bufs[b.ID] {
			p.dead = true
		}
	}
	be.q.settle(be.release(buf.block))
}

// Queue returns the backend's queue.
func (be *Backend) Queue() kernels.Queue { return be.q }

// Work waits for the queue and returns the counters. Rows and keys of Attend and
// Delta are counted by the kernels themselves.
func (be *Backend) Work() kernels.Counters {
	switch {
	case be.closed || be.q.recording != nil:
		return be.q.work
	case !be.q.counted:
		_ = be.q.Err()
	}
	return be.q.counters()
}

// Waits returns how often the host has waited for the device: for a ticket, for the
// whole queue, for counters, or for room in pinned memory.
func (be *Backend) Waits() int { return be.q.waits + be.q.up.waits + be.q.down.waits }

// Memory returns the bytes held by purpose.
func (be *Backend) Memory() kernels.Memory { return be.mem.held }

// Close frees everything. Handles are dead afterwards; closing twice is
// harmless.
func (be *Backend) Close() error {
	if be.closed || be.ctx == nil {
		be.closed = true
		return nil
	}
	be.closed = true
	defer be.leave()
	errs := []error{be.enter()}
	if be.q != nil {
		errs = append(errs, be.q.close())
	}
	errs = append(errs, be.mem.close())
	for _, m := range be.modules {
		errs = append(errs, m.Unload())
	}
	errs = append(errs, be.ctx.Release())
	clear(be.bufs)
	clear(be.weights)
	clear(be.caches)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cuda: close: %w", err)
	}
	return nil
}
