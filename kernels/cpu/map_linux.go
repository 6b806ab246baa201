//go:build linux

package cpu

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

// mapMemory returns size bytes of zeroed anonymous memory aligned to a huge
// page, outside Go's heap. size is a multiple of hugePage.
func mapMemory(size int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(size+hugePage), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("cpu: map %d bytes: %w", size, err)
	}
	head := (hugePage - int(uintptr(p)%hugePage)) % hugePage
	if head > 0 {
		if err := unix.MunmapPtr(p, uintptr(head)); err != nil {
			return nil, fmt.Errorf("cpu: trim a mapping: %w", err)
		}
	}
	start := unsafe.Add(p, head)
	if tail := hugePage - head; tail > 0 {
		if err := unix.MunmapPtr(unsafe.Add(start, size), uintptr(tail)); err != nil {
			return nil, fmt.Errorf("cpu: trim a mapping: %w", err)
		}
	}
	mem := unsafe.Slice((*byte)(start), size)
	// Advice: a kernel without transparent huge pages refuses it and the
	// mapping works all the same.
	_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	return mem, nil
}

// mapFile maps a file to be read, shared with other processes.
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
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, fmt.Errorf("it is no file with contents")
	}
	p, err := unix.MmapPtr(int(f.Fd()), 0, nil, uintptr(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return unsafe.Slice((*byte)(p), info.Size()), nil
}

func unmapMemory(mem []byte) error {
	if err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))); err != nil {
		return fmt.Errorf("cpu: unmap: %w", err)
	}
	return nil
}

// guardMemory makes a mapping inaccessible, or accessible again.
func guardMemory(mem []byte, shut bool) error {
	prot := unix.PROT_READ | unix.PROT_WRITE
	if shut {
		prot = unix.PROT_NONE
	}
	if err := unix.Mprotect(mem, prot); err != nil {
		return fmt.Errorf("cpu: protect memory: %w", err)
	}
	return nil
}

// yieldThread lets the operating system run another thread on this core.
func yieldThread() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}
