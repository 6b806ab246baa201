package vec

import (
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the time that the calling thread has run.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}

// bigMemory returns n bytes in huge pages, filled with small BF16 numbers, made
// on the first call.
func bigMemory(n int) func() []byte {
	return sync.OnceValue(func() []byte {
		x, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			return fill(make([]byte, n))
		}
		const madvHugepage = 14
		_ = syscall.Madvise(x, madvHugepage) // slower without, still right
		return fill(x)
	})
}
