package kerneltest_test

import (
	"testing"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/kerneltest"
	"exacta.dev/exacta/kernels/ref"
)

// The suite's own test is the judge: kernels/ref must pass what it judges.
func TestRef(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) kernels.Backend { return ref.New() },
		kerneltest.Options{Float64: true, Trees: true})
}
