package acceptance

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Segments that a clock closed are made into few, with the same records, and what a
// process that was killed meanwhile leaves reads as before.
func TestMerge(t *testing.T) {
	dir, before := t.TempDir(), filepath.Join(t.TempDir(), "before")
	w, err := newWriter(dir, Meta{Run: "x", Provenance: map[string]string{"a": "b"}}, nil, 20, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	w.merge = 8
	records := fakeRun(9, 1, 3, 20)[:57]
	for i, r := range records {
		require.NoError(t, w.Record(r))
		if i%3 == 2 {
			if len(w.small) == 7 && w.segment == 7 {
				require.NoError(t, os.CopyFS(before, os.DirFS(dir)))
			}
			require.NoError(t, w.flush(false))
		}
	}
	require.NoError(t, w.Close())
	same(t, records, read(t, dir))
	requireFiles(t, dir, segmentName(1), segmentName(7), segmentName(9), segmentName(15), segmentName(17))

	// The parts that were to be removed are still there.
	for n := 2; n <= 6; n++ {
		text, err := os.ReadFile(filepath.Join(before, segmentName(n)))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, segmentName(n)), text, 0o644))
	}
	same(t, records, read(t, dir))

	// A part that is missing is missed.
	require.NoError(t, os.Remove(filepath.Join(dir, segmentName(9))))
	_, err = Open(dir)
	require.ErrorContains(t, err, segmentName(9)+" is expected")
}

// A writer goes on after a failed segment where it is told to, and says what was lost.
func TestResume(t *testing.T) {
	dir, full := t.TempDir(), true
	w, err := newWriter(dir, Meta{Run: "x"}, nil, 5, func(n string) (file, error) {
		f, err := os.Create(n)
		if full && err == nil {
			return &hurt{File: f, write: syscall.ENOSPC}, nil
		}
		return f, err
	})
	require.NoError(t, err)
	records := fakeRun(9, 1, 3, 10)
	for _, r := range records[:4] {
		require.NoError(t, w.Record(r))
	}
	require.ErrorIs(t, w.Record(records[4]), syscall.ENOSPC)
	require.ErrorIs(t, w.Record(records[5]), syscall.ENOSPC)
	full = false
	require.Equal(t, 5, w.Resume())
	require.Zero(t, w.Resume())
	for _, r := range records[6:20] {
		require.NoError(t, w.Record(r))
	}
	require.NoError(t, w.Close())
	same(t, records[6:20], read(t, dir))
}
