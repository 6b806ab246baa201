package experiments

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/cuda"
	"exacta.dev/exacta/kernels/ref"
)

// Backends lists the names that OpenBackend knows.
var Backends = []string{"cpu", "ref", "cuda"}

// OpenBackend opens a backend by name. threads and set matter to cpu alone.
func OpenBackend(name string, threads int, set string) (kernels.Backend, error) {
	switch name {
	case "cpu":
		return opened(cpu.New(cpu.Options{Threads: threads, Kernels: set}))
	case "ref":
		return ref.New(), nil
	case "cuda":
		return opened(cuda.Open(cuda.Options{}))
	}
	return nil, fmt.Errorf("backend %q is not known; use one of %v", name, Backends)
}

// opened makes a backend of what a package returned: a nil pointer in an
// interface would not be nil.
func opened[B kernels.Backend](b B, err error) (kernels.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// isOutOfMemory reports whether a backend refused something for lack of memory.
func isOutOfMemory(err error) bool { return errors.Is(err, cuda.ErrOutOfMemory) }
