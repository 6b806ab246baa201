package kernels

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUniformIsOpen(t *testing.T) {
	require.Equal(t, 0x1p-53, uniform(0))
	require.Less(t, uniform(math.MaxUint64), 1.0)
	require.Equal(t, 1-0x1p-53, uniform(math.MaxUint64))
}
