package ranks_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/kerneltest"
	"exacta.dev/exacta/kernels/ranks"
)

func newCPU(t *testing.T) kernels.Backend {
	t.Helper()
	be, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	return be
}

// group makes a group of n ranks on the CPU.
func group(t *testing.T, n int, o ranks.Options) *ranks.Group {
	t.Helper()
	var inner []kernels.Backend
	for range n {
		inner = append(inner, newCPU(t))
	}
	g, err := ranks.New(inner, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// Ranks together must be as good a backend as one. One rank is tested on a
// device.
func TestConformance(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			kerneltest.Run(t, func(t *testing.T) kernels.Backend {
				return newChorus(group(t, n, ranks.Options{}))
			}, kerneltest.Options{})
		})
	}
}

// A rank on a device whose memory the host can't touch. Devices number their
// buffers each in its own way, so one goroutine can't drive several.
func TestConformanceOfADevice(t *testing.T) {
	kerneltest.Run(t, func(t *testing.T) kernels.Backend {
		g, err := ranks.New([]kernels.Backend{fakedev.New(newCPU(t))}, ranks.Options{})
		require.NoError(t, err)
		return newChorus(g)
	}, kerneltest.Options{})
}
