package fakedev_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/kerneltest"
	"exacta.dev/exacta/kernels/ref"
)

// A device must be as good a backend as what it wraps.

func TestConformanceOfRef(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) kernels.Backend { return fakedev.New(ref.New()) },
		kerneltest.Options{Float64: true, Trees: true})
}

// TestConformanceOfCPU runs with the wrapped backend's memory protected by the
// operating system between executions.
func TestConformanceOfCPU(t *testing.T) {
	kerneltest.Run(t, func(t *testing.T) kernels.Backend {
		be, err := cpu.New(cpu.Options{Threads: 2})
		require.NoError(t, err)
		return fakedev.New(be)
	}, kerneltest.Options{})
}
