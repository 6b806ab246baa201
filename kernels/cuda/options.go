package cuda

import "errors"

// DefaultMemoryFraction is the share of a GPU's memory that a backend may take
// when Options does not say.
const DefaultMemoryFraction = 0.9

// Options says which GPU to use and how much of it.
type Options struct {
	// Device is the ordinal of the GPU as the driver counts.
	Device int
	// MemoryFraction is the share of the GPU's memory, above 0 and at most
	// 1, that the backend may take; 0 means DefaultMemoryFraction.
	MemoryFraction float64
}

// ErrNoDevice is in the chain of Open's error where there is nothing to open: no
// driver, or a driver that sees no GPU.
var ErrNoDevice = errors.New("no NVIDIA GPU to use")
