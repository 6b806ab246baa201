//go:build !linux

package checkpoint

// fetch leaves it to the system when to read.
func fetch([]byte) {}
