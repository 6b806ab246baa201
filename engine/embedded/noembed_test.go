//go:build noembed

package embedded

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNoEmbedSaysSo(t *testing.T) {
	fsys, err := FS()
	require.Nil(t, fsys)
	require.ErrorContains(t, err, "noembed")
}
