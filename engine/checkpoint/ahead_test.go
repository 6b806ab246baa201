package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Three files, the middle one empty: what lies behind a part is asked for once, over
// the ends of files, and no further than it may be.
func TestAheadReaches(t *testing.T) {
	a := &ahead{busy: aheadAsks} // nobody takes what is asked for
	const first = 5*aheadChunk + 100
	whole := make([]byte, first+aheadBytes)
	m := a.file(whole[:first])
	a.file(nil)
	last := a.file(whole[first:])
	m.reach(whole[aheadChunk+1:])
	require.Len(t, a.todo, aheadBytes/aheadChunk)
	require.Equal(t, []bool{false, true, true, true, true, true}, m.asked)
	require.Len(t, a.todo[4], 100)
	m.reach(whole[2*aheadChunk:])
	require.Len(t, a.todo, aheadBytes/aheadChunk+1, "one more")
	last.reach(last.data[len(last.data)-1:])
	require.Len(t, a.todo, aheadBytes/aheadChunk+2)
	for _, p := range a.todo {
		require.LessOrEqual(t, len(p), aheadChunk)
	}
	a.close()
	last.reach(last.data[8*aheadChunk:])
	require.Len(t, a.todo, aheadBytes/aheadChunk+2, "closed")
}

// A checkpoint may be closed while its files are brought into memory, and views of it
// are what the file holds.
func TestAheadClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	text := make([]byte, 3*aheadChunk+5)
	for i := range text {
		text[i] = byte(i >> 8)
	}
	require.NoError(t, os.WriteFile(path, text, 0o644))
	for range 20 {
		data, unmap, err := mapFile(path)
		require.NoError(t, err)
		ck := &Checkpoint{}
		f := weightFile{name: "f", data: data, unmap: unmap, from: ck.ahead.file(data)}
		ck.files = append(ck.files, f)
		view := Finite{Tensor{Name: "t", DType: BF16, data: data[1:], file: f.from}}.View(4, 10)
		require.Equal(t, text[5:15], view)
		require.NoError(t, ck.Close())
	}
}
