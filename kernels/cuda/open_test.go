//go:build linux && (amd64 || arm64) && !nogpu

package cuda_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cuda"
)

// held keeps the device's context alive between the backends of the tests.
var held = sync.OnceValues(func() (*cuda.Backend, error) { return cuda.Open(cuda.Options{}) })

// open returns a fresh backend, or skips the test where there is no GPU.
func open(t *testing.T) *cuda.Backend {
	t.Helper()
	if _, err := held(); errors.Is(err, cuda.ErrNoDevice) {
		t.Skipf("not run on a device: %v", err)
	} else {
		require.NoError(t, err)
	}
	be, err := cuda.Open(cuda.Options{MemoryFraction: 0.5})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, be.Close()) })
	return be
}

func TestOpenSaysWhatItLookedFor(t *testing.T) {
	be, err := cuda.Open(cuda.Options{})
	if err == nil {
		require.NoError(t, be.Close())
		t.Skip("there is a GPU here")
	}
	require.Nil(t, be)
	require.ErrorIs(t, err, cuda.ErrNoDevice)
	require.ErrorContains(t, err, "libcuda.so.1")
}

func TestOpenRefusesFractions(t *testing.T) {
	for _, f := range []float64{-0.1, 1.5} {
		_, err := cuda.Open(cuda.Options{MemoryFraction: f})
		require.ErrorContains(t, err, "memory fraction")
	}
}

func TestOpenNamesTheDevicesThereAre(t *testing.T) {
	open(t)
	_, err := cuda.Open(cuda.Options{Device: 99})
	require.ErrorContains(t, err, "no GPU 99: the driver sees")
}

func TestOutOfMemoryHarmsNothing(t *testing.T) {
	be := open(t)
	before := be.Memory()
	_, err := be.Alloc(kernels.Activations, kernels.F32, 1<<20, 1<<20)
	require.ErrorIs(t, err, kernels.ErrOutOfMemory)
	require.ErrorContains(t, err, "activations")
	require.ErrorContains(t, err, "4096.00 GiB")
	t.Log(err)
	_, err = be.Caches(kernels.CacheSpec{
		Layers: []kernels.LayerSpec{{Kind: kernels.Attention, KVHeads: 8, HeadDim: 128}},
		Slots:  4, Pages: 1 << 20, SlotPages: 16,
	})
	require.ErrorIs(t, err, kernels.ErrOutOfMemory)
	require.ErrorContains(t, err, "kv")
	require.Equal(t, before, be.Memory())
	b, err := be.Alloc(kernels.Activations, kernels.F32, 4, 4)
	require.NoError(t, err)
	got := make([]byte, b.Bytes())
	require.NoError(t, be.Queue().Read(got, b).Wait())
	require.Equal(t, make([]byte, 64), got)
}
