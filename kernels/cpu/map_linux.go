//go:build linux

package cpu

import (
	"fmt"
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
