package cpu

import (
	"sync"
	"sync/atomic"
	"time"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu/vec"
)

// ReadWeights reads all weight memory passes times with the kernel set's plain
// read loop, each of the backend's threads a contiguous share of every mapping,
// and returns the bytes read and the time that took: the limit against which a
// decode step is measured.
func (b *Backend) ReadWeights(passes int) (bytes int64, took time.Duration) {
	var parts [][]byte
	for _, c := range b.mem.chunks {
		if c.purpose == kernels.Weights {
			parts = append(parts, c.mem[:c.top])
		}
	}
	n := len(b.pool.workers)
	var sink atomic.Uint64
	took = together(n, func(i int) {
		for range passes {
			for _, m := range parts {
				share := (len(m)/n + 63) &^ 63
				lo := min(len(m), i*share)
				sink.Add(b.set.ReadAll(m[lo:min(len(m), lo+share)]))
			}
		}
	})
	for _, m := range parts {
		bytes += int64(len(m)) * int64(passes)
	}
	return bytes, took
}

// PeakMACs runs the kernel set's multiply-adds in registers on all threads of
// the backend and returns how many were done in what time: the limit against
// which prefill is measured.
func (b *Backend) PeakMACs(iterations int) (macs int64, took time.Duration) {
	n := len(b.pool.workers)
	var sum atomic.Int64
	took = together(n, func(int) { sum.Add(b.set.Peak(iterations)) })
	return sum.Load(), took
}

// together runs f on n goroutines that start at the same moment, and returns
// the time from then until the last is done.
func together(n int, f func(i int)) time.Duration {
	var ready, done sync.WaitGroup
	var begin time.Time
	var started atomic.Bool
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			for !started.Load() {
				vec.Pause()
			}
			f(i)
		})
	}
	ready.Wait()
	begin = time.Now()
	started.Store(true)
	done.Wait()
	return time.Since(begin)
}
