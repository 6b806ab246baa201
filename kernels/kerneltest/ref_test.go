package kerneltest_test

import (
	"testing"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/kernels/kerneltest"
	"exacta.dev/exacta/kernels/ref"
)

func TestRef(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) kernels.Backend { return ref.New() },
		kerneltest.Options{Float64: true, Trees: true})
}

func TestFakeDevice(t *testing.T) {
	kerneltest.Run(t, func(*testing.T) kernels.Backend { return fakedev.New(ref.New()) },
		kerneltest.Options{Float64: true, Trees: true})
}
