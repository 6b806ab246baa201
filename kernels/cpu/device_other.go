//go:build !linux

package cpu

import "runtime"

// deviceName returns the processor's architecture.
func deviceName() string { return runtime.GOARCH }
