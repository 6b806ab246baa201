package cpu

import (
	"fmt"
	"math"
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
// Phases are the stretches between barriers, numbered from the first list on. At
// a barrier every worker writes the number of the phase that it enters to a cache
// line of its own and waits until all others have: one crossing of a line per
// pair of workers. A worker that found an error notes the phase that it found it
// in and walks on to the next barrier, where all compare that phase with their
// own, so that all leave the list at the same place.
type pool struct {
	workers []*worker
	crowded bool // more workers than processors: don't spin
	job     *list
	closed  bool
	gone    sync.WaitGroup

	_      [64]byte
	seq    atomic.Uint32 // number of lists handed out
	_      [64]byte
	next   [2]counter // of an even and an odd phase whose units are claimed
	done   atomic.Uint32
	_      [64]byte
	failed atomic.Uint64 // phase of the first error of the list, or noPhase
	broken atomic.Bool   // a worker is not coming to the barrier
	_      [64]byte

	errMu sync.Mutex
	err   error // of the current list
	errOp int   // its operation, so that the first in order is kept
}

// counter is a counter on a cache line of its own.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

// noPhase is a phase that no list reaches.
const noPhase = math.MaxUint64

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
	p.failed.Store(noPhase)
	p.next[p.workers[0].phase&1].n.Store(0)
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
		p.align()
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

// align brings the workers, none of which runs, to the same phase.
func (p *pool) align() {
	var last uint64
	for _, w := range p.workers {
		last = max(last, w.phase)
	}
	for _, w := range p.workers {
		w.phase = last
		w.entered.Store(last)
	}
}

// sync is the barrier: it returns false, to all workers alike, when the list
// must not go on.
func (w *worker) sync() bool {
	p := w.pool
	w.phase++
	if w.id == 0 {
		p.next[w.phase&1].n.Store(0) // last used two phases ago, which all have left
	}
	if w.n > 1 {
		w.entered.Store(w.phase)
		for _, o := range p.workers {
			for i := 0; o.entered.Load() < w.phase; i++ {
				if p.broken.Load() {
					return false
				}
				p.pause(i)
			}
		}
	}
	return p.failed.Load() >= w.phase
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

// fail records an error of operation op in a phase.
func (p *pool) fail(op int, phase uint64, err error) {
	p.errMu.Lock()
	if p.err == nil || op < p.errOp {
		p.err, p.errOp = err, op
	}
	p.failed.Store(min(p.failed.Load(), phase))
	p.errMu.Unlock()
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
			w.pool.fail(w.op, w.phase, fmt.Errorf("cpu: operation %d: %v", w.op, r))
			w.pool.broken.Store(true)
		}
	}()
	w.op = 0
	w.walk(l)
}
