package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"exacta.dev/exacta/kernels/cpu/vec"
)

const (
	// idleSpin is how long a worker spins for the next list before it parks.
	idleSpin = 50 * time.Microsecond
	// barrierSpins is the number of polls at a barrier before a worker lets
	// other goroutines, and then other threads, have the core.
	barrierSpins = 150
)

// pool is the fixed set of workers of a backend. Worker 0 is the goroutine that
// waits for the queue; the others are its own.
//
// A barrier is one counter and one phase number on cache lines of their own.
// The last worker to arrive decides, for all, whether the list goes on: a
// worker that found an error sets failed and walks on to the next barrier, so
// that all leave the list at the same place.
type pool struct {
	workers []*worker
	crowded bool // more workers than processors: don't spin
	job     *list
	closed  bool
	gone    sync.WaitGroup

	_       [64]byte
	seq     atomic.Uint32 // number of lists handed out
	_       [64]byte
	arrived atomic.Uint32
	_       [64]byte
	phase   atomic.Uint32
	stop    bool // written by the last to arrive, read by all after phase moved
	_       [64]byte
	next    atomic.Int64 // next unit of a phase whose units are claimed; 0 after each barrier
	_       [64]byte
	done    atomic.Uint32 // workers that have left the list
	failed  atomic.Bool
	broken  atomic.Bool // a worker is not coming to the barrier
	_       [64]byte

	errMu sync.Mutex
	err   error // of the current list
	errOp int   // its operation, so that the first in order is kept
}

func newPool(b *Backend, n int) *pool {
	p := &pool{crowded: n > runtime.GOMAXPROCS(0)}
	for i := range n {
		p.workers = append(p.workers, &worker{id: i, n: n, pool: p, set: b.set, wake: make(chan struct{}, 1)})
	}
	p.gone.Add(n - 1)
	for _, w := range p.workers[1:] {
		go w.loop()
	}
	return p
}

// run walks l with all workers and returns the first error.
func (p *pool) run(l *list) error {
	p.err, p.errOp = nil, 0
	p.failed.Store(false)
	p.next.Store(0)
	p.job = l
	if len(p.workers) > 1 {
		p.release()
	}
	p.workers[0].execute(l)
	others := uint32(len(p.workers) - 1)
	for i := 0; p.done.Load() != others; i++ {
		p.pause(i)
	}
	p.done.Store(0)
	if p.broken.Load() {
		p.broken.Store(false)
		p.arrived.Store(0)
	}
	p.job = nil
	return p.err
}

// release wakes the workers for the current job.
func (p *pool) release() {
	p.seq.Add(1)
	for _, w := range p.workers[1:] {
		if w.parked.CompareAndSwap(1, 0) {
			w.wake <- struct{}{}
		}
	}
}

func (p *pool) close() {
	if p.closed {
		return
	}
	p.closed = true
	p.release()
	p.gone.Wait()
}

// sync is the barrier: it returns false, to all workers alike, when the list
// must not go on.
func (p *pool) sync() bool {
	phase := p.phase.Load()
	if int(p.arrived.Add(1)) == len(p.workers) {
		p.arrived.Store(0)
		p.next.Store(0)
		p.stop = p.failed.Load()
		p.phase.Store(phase + 1)
		return !p.stop
	}
	for i := 0; p.phase.Load() == phase; i++ {
		if p.broken.Load() {
			return false
		}
		p.pause(i)
	}
	return !p.stop
}

// pause is one round of a wait loop, the i-th.
func (p *pool) pause(i int) {
	switch {
	case i < 64 && !p.crowded:
	case i < barrierSpins && !p.crowded:
		vec.Pause()
	default:
		runtime.Gosched()
		if i&7 == 7 {
			yieldThread()
		}
	}
}

// fail records an error of operation op.
func (p *pool) fail(op int, err error) {
	p.errMu.Lock()
	if p.err == nil || op < p.errOp {
		p.err, p.errOp = err, op
	}
	p.errMu.Unlock()
	p.failed.Store(true)
}

// loop is the life of a worker other than 0.
func (w *worker) loop() {
	defer w.pool.gone.Done()
	for seen := uint32(0); ; {
		w.await(seen)
		seen++
		if w.pool.closed {
			return
		}
		w.execute(w.pool.job)
		w.pool.done.Add(1)
	}
}

// await returns when the pool's sequence number has moved past seen.
func (w *worker) await(seen uint32) {
	p := w.pool
	var start time.Time
	for i := 0; p.seq.Load() == seen; i++ {
		if i&63 != 63 && !p.crowded {
			vec.Pause()
			continue
		}
		now := time.Now()
		if start.IsZero() {
			start = now
		}
		if now.Sub(start) < idleSpin {
			continue
		}
		w.parked.Store(1)
		if p.seq.Load() == seen || !w.parked.CompareAndSwap(1, 0) {
			<-w.wake
		}
		return
	}
}

// execute walks a list; a panic in an operation becomes the list's error, so
// that a defect in a kernel does not take the process down.
func (w *worker) execute(l *list) {
	defer func() {
		if r := recover(); r != nil {
			w.pool.fail(w.op, fmt.Errorf("cpu: operation %d: %v", w.op, r))
			w.pool.broken.Store(true)
		}
	}()
	w.op = 0
	w.walk(l)
}
