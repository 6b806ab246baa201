package experiments

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Streams read every byte of every file once, files of a few bytes too.
func TestReadShare(t *testing.T) {
	var files []string
	for i, n := range []int{0, 1, 3, coldBlock + 7} {
		files = append(files, filepath.Join(t.TempDir(), string(rune('a'+i))))
		require.NoError(t, os.WriteFile(files[i], make([]byte, n), 0o644))
	}
	var total int64
	for i := range coldStreams {
		n, err := readShare(files, i)
		require.NoError(t, err)
		total += n
	}
	require.EqualValues(t, 4+coldBlock+7, total)
	_, err := readFiles([]string{filepath.Join(t.TempDir(), "none")})
	require.ErrorIs(t, err, os.ErrNotExist)
}
