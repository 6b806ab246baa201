package cpu

import (
	"sync/atomic"
	"time"

	"exacta.dev/exacta/kernels"
)

// ReadWeights reads all weight memory passes times with the kernel set's plain
// read loop, each of the backend's workers a contiguous share of every mapping,
// and returns the bytes read and the time that took: the limit against which a
// decode step is measured.
func (b *Backend) ReadWeights(passes int) (bytes int64, took time.Duration) {
	var parts [][]byte
	for _, c := range b.mem.chunks {
		if c.purpose == kernels.Weights {
			parts = append(parts, c.mem[:c.top])
			bytes += int64(c.top) * int64(passes)
		}
	}
	var sink atomic.Uint64
	return bytes, b.together(func(w *worker) {
		for range passes {
			for _, m := range parts {
				lo, hi := w.share(len(m) / lineBytes)
				sink.Add(w.set.ReadAll(m[lo*lineBytes : hi*lineBytes]))
			}
		}
	})
}

// PeakMACs runs the kernel set's multiply-adds in registers on all workers of
// the backend and returns how many were done in what time: the limit against
// which prefill is measured.
func (b *Backend) PeakMACs(iterations int) (macs int64, took time.Duration) {
	var sum atomic.Int64
	took = b.together(func(w *worker) { sum.Add(w.set.Peak(iterations)) })
	return sum.Load(), took
}

// together runs f on all workers, and returns the time from when all of them are
// awake until the last is done.
func (b *Backend) together(f func(w *worker)) time.Duration {
	b.queue.flush()
	b.mem.open()
	defer b.mem.shut()
	var begin time.Time
	l := list{
		refs: []ref{{kind: opCall}, {kind: opCall, solo: true, i: 1}, {kind: opCall, i: 2}},
		calls: []func(*worker){
			func(*worker) {}, // the barrier after it is where they meet
			func(*worker) { begin = time.Now() },
			f,
		},
	}
	if err := b.pool.run(&l); err != nil {
		b.queue.stick(err)
	}
	return time.Since(begin)
}

// CopyIn copies parts into fresh memory of the kind that weights lie in, each of the
// backend's workers a contiguous share of every part, and returns the bytes copied and
// the time that took: the limit against which loading is measured. The error is of the
// system, that has no such memory.
func (b *Backend) CopyIn(parts [][]byte) (bytes int64, took time.Duration, err error) {
	for _, p := range parts {
		bytes += int64(len(p))
	}
	mem, err := mapMemory(roundUp(int(bytes), hugePage))
	if err != nil {
		return 0, 0, err
	}
	took = b.together(func(w *worker) {
		at := 0
		for _, p := range parts {
			lo, hi := w.share(len(p))
			copy(mem[at+lo:at+hi], p[lo:hi])
			at += len(p)
		}
	})
	return bytes, took, unmapMemory(mem)
}
