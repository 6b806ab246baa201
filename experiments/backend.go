package experiments

import (
	"errors"
	"fmt"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/cuda"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/ref"
)

// Backends lists the names that OpenBackend knows.
var Backends = []string{"cpu", "ref", "cuda", "fakedev"}

// BackendChoice says which backend to open.
type BackendChoice struct {
	Name string // one of Backends
	// Threads and Kernels (a kernel set) matter to cpu and fakedev alone.
	Threads int
	Kernels string
	// GPUMemory is the share of the GPU's memory that cuda may take; 0 is
	// cuda.DefaultMemoryFraction.
	GPUMemory float64
}

// OpenBackend opens a backend.
func OpenBackend(c BackendChoice) (kernels.Backend, error) {
	switch c.Name {
	case "cpu":
		return opened(cpu.New(cpu.Options{Threads: c.Threads, Kernels: c.Kernels}))
	case "ref":
		return ref.New(), nil
	case "cuda":
		return opened(cuda.Open(cuda.Options{MemoryFraction: c.GPUMemory}))
	case "fakedev":
		be, err := cpu.New(cpu.Options{Threads: c.Threads, Kernels: c.Kernels})
		if err != nil {
			return nil, err
		}
		return fakedev.New(be), nil
	}
	return nil, fmt.Errorf("backend %q is not known; use one of %v", c.Name, Backends)
}

// validGPUMemory says what is wrong with a share of a GPU's memory, or "".
func validGPUMemory(share float64, backend string) string {
	switch {
	case !(share >= 0 && share <= 1):
		return fmt.Sprintf("%g is out of range 0..1", share)
	case share > 0 && backend != "cuda":
		return "is for backend cuda, not " + backend
	}
	return ""
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
func isOutOfMemory(err error) bool { return errors.Is(err, kernels.ErrOutOfMemory) }
