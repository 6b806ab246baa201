//go:build !linux

package cpu

import (
	"errors"
	"io"
	"os"
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

// mapFile reads the file where it is not mapped.
func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	mem, err := mapMemory(int(info.Size()))
	if err == nil {
		_, err = io.ReadFull(f, mem)
	}
	return mem, err
}

func unmapMemory([]byte) error { return nil }

func guardMemory([]byte, bool) error {
	return errors.New("cpu: memory can be protected on linux only")
}

// yieldThread lets another goroutine run.
func yieldThread() { runtime.Gosched() }
