package acceptance

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// hurt is a real file of which one operation fails.
type hurt struct {
	*os.File
	write, sync, close error
	room               int // bytes that fit before write fails
}

func (h *hurt) Write(p []byte) (int, error) {
	if h.write == nil {
		return h.File.Write(p)
	}
	n, err := h.File.Write(p[:min(h.room, len(p))])
	h.room -= n
	if err == nil && n < len(p) {
		err = h.write
	}
	return n, err
}

func (h *hurt) Sync() error {
	if h.sync != nil {
		return h.sync
	}
	return h.File.Sync()
}

func (h *hurt) Close() error { return errors.Join(h.File.Close(), h.close) }

// Whatever fails while a segment is written, there is one error that names the
// file; earlier segments stay and the temporary file does not.
func TestWriteFailures(t *testing.T) {
	broken := errors.New("input/output error")
	for name, hit := range map[string]struct {
		file hurt
		want error
	}{
		"nothing fits":    {hurt{write: syscall.ENOSPC}, syscall.ENOSPC},
		"4 bytes fit":     {hurt{write: syscall.ENOSPC, room: 4}, syscall.ENOSPC},
		"1000 bytes fit":  {hurt{write: syscall.ENOSPC, room: 1000}, syscall.ENOSPC},
		"sync":            {hurt{sync: broken}, broken},
		"close":           {hurt{close: broken}, broken},
		"write and close": {hurt{write: syscall.ENOSPC, close: broken}, syscall.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			dir, made := t.TempDir(), 0
			w, err := newWriter(dir, Meta{Run: "x"}, nil, 5, func(n string) (file, error) {
				f, err := os.Create(n)
				if made++; made < 3 || err != nil {
					return f, err
				}
				hit.file.File = f
				return &hit.file, nil
			})
			require.NoError(t, err)
			records := fakeRun(9, 1, 3, 10)
			for _, r := range records[:14] {
				require.NoError(t, w.Record(r))
			}
			err = w.Record(records[14])
			require.ErrorIs(t, err, hit.want)
			require.ErrorContains(t, err, "records: write "+filepath.Join(dir, segmentName(3))+" (5 records are lost; earlier segments are complete): ")
			require.NoError(t, w.Close())
			same(t, records[:10], read(t, dir))
			requireFiles(t, dir, segmentName(1), segmentName(2))
		})
	}
}

// The directory that is removed under the writer, and a name that is taken.
func TestWriteFailuresOfTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.Mkdir(dir, 0o755))
	w, err := NewWriter(dir, Meta{Run: "x"})
	require.NoError(t, err)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, w.Record(fakeRun(1, 1, 1, 1)[0]))
	err = w.Close()
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, filepath.Join(dir, segmentName(1)))

	dir = t.TempDir()
	w, err = newWriter(dir, Meta{Run: "x"}, nil, 100, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, segmentName(1)), 0o755))
	require.NoError(t, w.Record(fakeRun(1, 1, 1, 1)[0]))
	require.ErrorContains(t, w.Close(), "rename "+filepath.Join(dir, segmentName(1))+".tmp")
	requireFiles(t, dir, segmentName(1))
}

func requireFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	require.Equal(t, names, have)
}
