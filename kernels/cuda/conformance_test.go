//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"testing"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/kerneltest"
)

func TestConformance(t *testing.T) {
	open(t)
	kerneltest.Run(t, func(t *testing.T) kernels.Backend { return open(t) }, kerneltest.Options{Trees: true})
}
