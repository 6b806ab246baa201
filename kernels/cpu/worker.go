package cpu

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// worker is one of the threads that walk a list together.
type worker struct {
	id, n int
	pool  *pool
	set   *vec.Set
	op    int  // index of the current operation, for errors
	solo  bool // it runs on worker 0 alone

	tmp    []byte // scratch, handed out from the front by take
	taken  int
	shared []byte    // scratch that all workers see
	wide   []float32 // rows of a product with a matrix of 4 bits, in tmp
	work   kernels.Counters
	next   *uint16            // weights that are read after those of the current product, or nil
	seen   []uint64           // per slot: the last check of spans that met it
	check  uint64             // number of the current one
	in     [convTaps][]uint16 // inputs of a convolution: whole rows
	cut    [convTaps][]uint16 // and their channels of one head

	phase uint64 // number of the current phase of the pool

	_       [64]byte
	entered atomic.Uint64 // phase, for the others to see
	_       [56]byte
	parked  atomic.Uint32
	wake    chan struct{}
	_       [64]byte
}

// share returns this worker's contiguous part of n units.
func (w *worker) share(n int) (from, to int) {
	return n * w.id / w.n, n * (w.id + 1) / w.n
}

// claim returns the next unit of a phase whose units are handed out one by one.
func (w *worker) claim() int { return int(w.pool.next[w.phase&1].n.Add(1)) - 1 }

// first and after walk this worker's units of a phase that has n of about the same
// size: where there are few, always the same ones, so that what belongs to a unit
// stays in the cache of its worker; else they are claimed.
func (w *worker) first(n int) int { return w.after(w.id-w.n, n) }

func (w *worker) after(u, n int) int {
	if n <= 2*w.n {
		return u + w.n
	}
	return w.claim()
}

func (w *worker) fail(format string, args ...any) {
	w.pool.fail(w.op, w.phase, fmt.Errorf(format, args...))
}

// begin empties the scratch memory; every operation calls it first.
func (w *worker) begin() { w.taken = 0 }

func (w *worker) take(bytes int) unsafe.Pointer {
	p := unsafe.Pointer(&w.tmp[w.taken])
	w.taken += roundUp(bytes, lineBytes)
	return p
}

// f32 returns n elements of scratch with any content. What an operation takes
// in all must have been asked for when it was recorded.
func (w *worker) f32(n int) []float32 { return unsafe.Slice((*float32)(w.take(4*n)), n) }

// u16 returns n elements of scratch with any content.
func (w *worker) u16(n int) []uint16 { return unsafe.Slice((*uint16)(w.take(2*n)), n) }

// scratchBytes is what taking the given numbers of float32 and BF16 elements
// needs.
func scratchBytes(f32s, u16s []int) int {
	total := lineBytes
	for _, n := range f32s {
		total += roundUp(4*n, lineBytes)
	}
	for _, n := range u16s {
		total += roundUp(2*n, lineBytes)
	}
	return total
}
