package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// Options configures a backend.
type Options struct {
	// Threads is the number of workers; 0 means GOMAXPROCS.
	Threads int
	// Kernels names the kernel set ("avx512bf16", "avx512f", "avx2", "go").
	// Empty means the environment variable EXACTA_KERNELS, or the best set
	// that the processor has.
	Kernels string
	// Plan makes a backend that only counts: it takes parameters in without
	// reading them, and memory is set aside but not used. What its operations
	// compute means nothing.
	Plan bool
}

// Backend is the CPU implementation of kernels.Backend.
type Backend struct {
	set     *vec.Set
	mem     memory
	pool    *pool
	queue   *queue
	bufs    []buffer
	weights []*weight
	caches  []*caches
	scratch struct {
		workers []block
		shared  block
		have    needs
	}
	opened  time.Time
	freed   int // times that memory was given back; programs look at it
	stream  int // bytes of weights from which few rows read them as a stream
	plan    bool
	packing *packing // between UsePacked and FinishPacked
	closed  bool
}

var _ kernels.Backend = (*Backend)(nil)

// New makes a backend. The error names a kernel set that is unknown or that
// the processor lacks.
func New(opts Options) (*Backend, error) {
	set, err := vec.Pick(opts.Kernels)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if opts.Threads < 0 {
		return nil, fmt.Errorf("cpu: %d threads; want 0 (all processors) or more", opts.Threads)
	}
	threads := opts.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	b := &Backend{opened: time.Now(), set: set, stream: streamBytes, plan: opts.Plan}
	b.pool = newPool(b, threads)
	b.queue = &queue{b: b}
	b.queue.list = &b.queue.main
	b.scratch.workers = make([]block, threads)
	if err := b.fit(needs{worker: firstScratch, shared: firstScratch}); err != nil {
		_ = b.Close() // the allocation's error is the one to report
		return nil, err
	}
	return b, nil
}

// Info describes the backend, the processor and the kernel set in use.
func (b *Backend) Info() kernels.Info {
	return kernels.Info{
		Name: "cpu", Device: deviceName(), Kernels: b.set.Name, Threads: len(b.pool.workers),
		Arithmetic: "cpu-bf16-1",
	}
}

// Alloc returns a zeroed buffer of rows x cols elements. The error says what
// did not fit.
func (b *Backend) Alloc(p kernels.Purpose, k kernels.Kind, rows, cols int) (kernels.Buf, error) {
	switch {
	case b.closed:
		return kernels.Buf{}, errClosed
	case rows <= 0 || cols <= 0 || rows > 1<<30 || cols > 1<<30:
		return kernels.Buf{}, fmt.Errorf("cpu: a buffer of %d x %d elements; dimensions must be positive and fit", rows, cols)
	case k < kernels.BF16 || k > kernels.I32:
		return kernels.Buf{}, fmt.Errorf("cpu: a buffer of unknown %s", k)
	case p >= kernels.NumPurposes:
		return kernels.Buf{}, fmt.Errorf("cpu: a buffer for unknown purpose %d", p)
	}
	b.mem.open()
	defer b.mem.shut()
	stride := rowStride(k, cols)
	mem, err := b.mem.alloc(p, stride*rows)
	if err != nil {
		return kernels.Buf{}, err
	}
	b.bufs = append(b.bufs, buffer{mem: mem, rows: rows, cols: cols, stride: stride, kind: k, live: true})
	return kernels.Buf{ID: uint32(len(b.bufs)), Rows: int32(rows), Cols: int32(cols), Kind: k}, nil
}

var errClosed = errors.New("cpu: the backend is closed")

// Free returns a buffer's memory; operations recorded before it run first.
// Freeing the zero Buf, or a buffer twice, does nothing.
func (b *Backend) Free(buf kernels.Buf) {
	if b.closed || buf.ID == 0 || int(buf.ID) > len(b.bufs) || !b.bufs[buf.ID-1].live {
		return
	}
	b.queue.flush()
	x := &b.bufs[buf.ID-1]
	x.live = false
	b.freed++
	b.mem.open()
	defer b.mem.shut()
	if err := b.mem.free(x.mem); err != nil {
		b.queue.stick(err)
	}
}

// Queue returns the backend's queue.
func (b *Backend) Queue() kernels.Queue { return b.queue }

// Work returns the counters of executed work, after running what is recorded.
func (b *Backend) Work() kernels.Counters {
	b.queue.flush()
	return b.worked()
}

// worked adds up what the workers have counted.
func (b *Backend) worked() kernels.Counters {
	var total kernels.Counters
	for _, w := range b.pool.workers {
		c := &w.work
		total.Ops += c.Ops
		total.Launches += c.Launches
		total.MatMulRows += c.MatMulRows
		total.MACs += c.MACs
		total.WeightBytes += c.WeightBytes
		total.AttendRows += c.AttendRows
		total.KVTokens += c.KVTokens
		total.DeltaRows += c.DeltaRows
		total.LogitRows += c.LogitRows
	}
	return total
}

// Memory returns the bytes held, by purpose. The workers' scratch memory counts
// as activations.
func (b *Backend) Memory() kernels.Memory { return b.mem.used }

// Protect makes all memory of the backend inaccessible except while the backend
// itself runs operations or loads: a host access behind the seam then faults.
// It serves kernels/fakedev and tests. The error says that the system does not
// offer it.
func (b *Backend) Protect(on bool) error { return b.mem.protect(on) }

// Close runs nothing more, stops the workers and frees all memory.
func (b *Backend) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.pool.close()
	b.queue.stick(errClosed)
	b.queue.main.reset()
	return b.mem.close()
}

// firstScratch is the scratch memory of a worker, and that which all share, at
// the start: enough for most models, so that what is held stays as it is.
const firstScratch = 1 << 20

// needs are the scratch bytes that a list asks for.
type needs struct{ worker, shared int }

func (n needs) or(m needs) needs { return needs{max(n.worker, m.worker), max(n.shared, m.shared)} }

// fit grows the scratch memory to what a list needs.
func (b *Backend) fit(n needs) error {
	s := &b.scratch
	if n.worker > s.have.worker {
		for i, w := range b.pool.workers {
			mem, err := b.regrow(s.workers[i], n.worker)
			if err != nil {
				return err
			}
			s.workers[i], w.tmp = mem, mem.chunk.mem[mem.off:mem.off+mem.size]
		}
		s.have.worker = n.worker
	}
	if n.shared > s.have.shared {
		mem, err := b.regrow(s.shared, n.shared)
		if err != nil {
			return err
		}
		s.shared = mem
		for _, w := range b.pool.workers {
			w.shared = mem.chunk.mem[mem.off : mem.off+mem.size]
		}
		s.have.shared = n.shared
	}
	return nil
}

func (b *Backend) regrow(old block, size int) (block, error) {
	if old.chunk != nil {
		if err := b.mem.free(old); err != nil {
			return block{}, err
		}
	}
	return b.mem.alloc(kernels.Activations, size)
}
