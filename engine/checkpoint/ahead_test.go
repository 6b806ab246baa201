package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three files, the middle one empty: what lies behind a part is asked for over the ends
// of files, and no further than it may be.
func TestAheadReaches(t *testing.T) {
	const first = 5*aheadChunk + 100
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, nil, 0o644))
	require.NoError(t, os.Truncate(path, first+aheadBytes))
	data, unmap, err := mapFile(path)
	require.NoError(t, err)
	var ck Checkpoint
	m := ck.mapped(data[:first])
	ck.mapped(nil)
	last := ck.mapped(data[5*aheadChunk+4096:])
	count := func(m *mapping) (n int) {
		for _, asked := range m.asked {
			if asked {
				n++
			}
		}
		return n
	}
	m.reach(data[aheadChunk+1:])
	require.Equal(t, []bool{false, true, true, true, true, true}, m.asked)
	require.Equal(t, aheadBytes/aheadChunk-5, count(last))
	m.reach(data[2*aheadChunk:])
	require.Equal(t, aheadBytes/aheadChunk-4, count(last))
	last.reach(last.data[len(last.data)-1:])
	require.True(t, last.asked[len(last.asked)-1])
	require.Equal(t, 5, count(m))

	view := Finite{Tensor{Name: "t", DType: BF16, data: data[1:first], file: m}}.View(4, 10)
	require.Equal(t, make([]byte, 10), view)
	require.True(t, m.asked[0])
	require.NoError(t, unmap())
}
