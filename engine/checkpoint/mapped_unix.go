//go:build unix

package checkpoint

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapFile maps a file read-only. The mapping outlives the descriptor and is
// undone by unmap.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	size := info.Size()
	if size == 0 {
		return nil, func() error { return nil }, nil
	}
	if int64(int(size)) != size {
		return nil, nil, fmt.Errorf("%s has %d bytes, too many to map", path, size)
	}
	data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

// discard lets the system drop the whole pages inside p.
func discard(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(&p[0]))
	skip := (page - at%page) % page
	if skip >= uintptr(len(p)) {
		return nil
	}
	n := (uintptr(len(p)) - skip) / page * page
	if n == 0 {
		return nil
	}
	return unix.Madvise(p[skip:skip+n], unix.MADV_DONTNEED)
}
