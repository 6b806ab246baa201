package cpu_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/cpu/vec"
	"exacta.dev/exacta/kernels/kerneltest"
)

// TestConformance holds the backend to the suite that all backends pass: with
// the fastest kernel set, or with every set of this machine if EXACTA_SOAK is
// set (TestAttendInvariance and its kin compare the sets in any case).
func TestConformance(t *testing.T) {
	sets := vec.Sets()
	if os.Getenv("EXACTA_SOAK") == "" {
		sets = sets[:1]
	}
	for _, s := range sets {
		t.Run(s.Name, func(t *testing.T) {
			kerneltest.Run(t, func(t *testing.T) kernels.Backend {
				b, err := cpu.New(cpu.Options{Threads: 2, Kernels: s.Name})
				require.NoError(t, err)
				return b
			}, kerneltest.Options{Trees: true})
		})
	}
}
