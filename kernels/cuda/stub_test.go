//go:build !linux || !(amd64 || arm64) || nogpu

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels/cuda"
)

func TestOpenRefuses(t *testing.T) {
	be, err := cuda.Open(cuda.Options{})
	require.Nil(t, be)
	require.ErrorIs(t, err, cuda.ErrNoDevice)
	require.ErrorContains(t, err, "nogpu")
}
