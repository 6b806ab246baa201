//go:build !unix

package checkpoint

import "os"

// mapFile reads the whole file, on systems where it is not mapped.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	data, err = os.ReadFile(path)
	return data, func() error { return nil }, err
}

// discard does nothing for bytes in the heap.
func discard([]byte) error { return nil }
