//go:build !linux

package cpu

import (
	"errors"
	"runtime"
	"unsafe"
)

const hugePage = 2 << 20

// mapMemory takes the memory from Go's heap where anonymous mappings with huge
// pages are not at hand, aligned to a cache line.
func mapMemory(size int) ([]byte, error) {
	const line = 64
	mem := make([]byte, size+line)
	off := (line - int(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%line)) % line
	return mem[off : off+size : off+size], nil
}

func unmapMemory([]byte) error { return nil }

func guardMemory([]byte, bool) error {
	return errors.New("cpu: memory can be protected on linux only")
}

// yieldThread lets another goroutine run.
func yieldThread() { runtime.Gosched() }
