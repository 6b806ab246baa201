//go:build !linux

package vec

import (
	"sync"
	"time"
)

var started = time.Now()

// threadTime returns the time since the start: the nearest thing here.
func threadTime() time.Duration { return time.Since(started) }

// bigMemory returns n bytes, made on the first call.
func bigMemory(n int) func() []byte {
	return sync.OnceValue(func() []byte { return fill(make([]byte, n)) })
}
