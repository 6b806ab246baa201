//go:build !linux || !(amd64 || arm64) || nogpu

package cuda

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// Backend is never made in this build.
type Backend struct{ kernels.Backend }

// Open returns an error: this build has no device support.
func Open(Options) (*Backend, error) {
	return nil, fmt.Errorf("cuda: %w: no device support in this build; it needs Linux on amd64 or arm64 and no build tag nogpu", ErrNoDevice)
}
