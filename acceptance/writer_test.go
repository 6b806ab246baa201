package acceptance

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"exacta.dev/exacta/engine"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		child(dir)
	}
	goleak.VerifyTestMain(m)
}

func TestRoundTrip(t *testing.T) {
	meta := Meta{Run: "night-1", Provenance: map[string]string{"model_hash": "ab12", "config": "k: 4\nq: \"ü\"", "empty": ""}}
	records := fakeRun(1, 3, 4, 40)
	records[5].Gaps, records[5].Hashes = []float32{0}, []uint64{1<<64 - 1}
	dir := write(t, meta, records)
	r, err := Open(dir)
	require.NoError(t, err)
	require.Equal(t, meta, r.Meta())
	same(t, records, read(t, dir))
}

// The consumer may stop early, and its panics are its own.
func TestReadPart(t *testing.T) {
	dir := write(t, Meta{Run: "x"}, fakeRun(1, 1, 2, 10))
	r, err := Open(dir)
	require.NoError(t, err)
	n := 0
	for _, err := range r.All() {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)
	require.PanicsWithValue(t, "mine", func() {
		for range r.All() {
			panic("mine")
		}
	})
}

func TestNoRecordsNoFiles(t *testing.T) {
	dir := write(t, Meta{Run: "x"}, nil)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	_, err = Open(dir)
	require.EqualError(t, err, "records: "+dir+" holds no records-000001.parquet; it is not the directory of a run, or nothing was recorded")
}

// manual is a clock that a test ticks. tick returns when the writer has dealt
// with it: it takes the second tick only after the first.
type manual chan time.Time

func (m manual) tick() {
	m <- time.Time{}
	m <- time.Time{}
}

// A record is on disk after the next tick, though no other record follows; a tick
// without records leaves no segment.
func TestSegmentsByTime(t *testing.T) {
	require.LessOrEqual(t, 2*segmentAge, 2*time.Second) // a tick, and the same again to write
	dir, clock := t.TempDir(), make(manual)
	w, err := newWriter(dir, Meta{Run: "x"}, clock, 1000, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	records := fakeRun(2, 1, 1, 30)
	taken := 0
	for i, n := range []int{1, 3, 0, 0, 7, 1} {
		for range n {
			require.NoError(t, w.Record(records[taken]))
			taken++
		}
		clock.tick()
		same(t, records[:taken], read(t, dir))
		numbers, err := segments(dir)
		require.NoError(t, err)
		require.Len(t, numbers, []int{1, 2, 2, 2, 3, 4}[i])
	}
	require.NoError(t, w.Close())
	same(t, records[:taken], read(t, dir))
}

// A tick in the middle of a step leaves its records to the next one, and those of a
// step that stays short, whose sequences failed say, to that alone.
func TestSegmentsOfWholeSteps(t *testing.T) {
	dir, clock := t.TempDir(), make(manual)
	w, err := newWriter(dir, Meta{Run: "x"}, clock, 1000, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	records := fakeRun(2, 1, 3, 30)
	for _, r := range records[:8] {
		require.NoError(t, w.Record(r))
	}
	clock <- time.Time{}
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, segmentName(1))); return err == nil }, 10*time.Second, time.Millisecond)
	same(t, records[:6], read(t, dir))
	require.NoError(t, w.Record(records[8]))
	require.NoError(t, w.Record(records[9]))
	clock.tick()
	clock.tick()
	same(t, records[:10], read(t, dir))
	require.NoError(t, w.Close())
	same(t, records[:10], read(t, dir))
}

func TestSegmentsByRows(t *testing.T) {
	dir := t.TempDir()
	w, err := newWriter(dir, Meta{Run: "x"}, nil, 10, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	records := fakeRun(3, 2, 3, 9)
	for i, r := range records {
		require.NoError(t, w.Record(r))
		if i%10 == 9 {
			same(t, records[:i+1], read(t, dir))
		}
	}
	require.NoError(t, w.Close())
	same(t, records, read(t, dir))
	numbers, err := segments(dir)
	require.NoError(t, err)
	require.Len(t, numbers, 6)
}

func TestWriterUse(t *testing.T) {
	dir := write(t, Meta{Run: "x"}, fakeRun(1, 1, 1, 3))
	_, err := NewWriter(dir, Meta{Run: "y"})
	require.EqualError(t, err, "records: "+dir+" already holds records (records-000001.parquet); a run needs a directory of its own")
	_, err = NewWriter(filepath.Join(dir, "nowhere"), Meta{})
	require.ErrorIs(t, err, os.ErrNotExist)

	// A directory whose name is a pattern.
	odd := filepath.Join(t.TempDir(), "run[1]*")
	require.NoError(t, os.Mkdir(odd, 0o755))
	w, err := NewWriter(odd, Meta{Run: "x"})
	require.NoError(t, err)
	require.NoError(t, w.Record(fakeRun(1, 1, 1, 1)[0]))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.EqualError(t, w.Record(&engine.Record{}), "records: the writer of "+odd+" is closed")
	require.Len(t, read(t, odd), 1)
}

// failing is a file on a full disk.
type failing struct{ err error }

func (f failing) Write(p []byte) (int, error) { return len(p) / 2, f.err }
func (f failing) Sync() error                 { return nil }
func (f failing) Close() error                { return nil }

// A full disk gives one error that names the file, once; earlier segments are
// complete and nothing half-written is left.
func TestDiskFull(t *testing.T) {
	for name, full := range map[string]func() (file, error){
		"hook":   func() (file, error) { return failing{syscall.ENOSPC}, nil },
		"device": func() (file, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) },
		"create": func() (file, error) { return nil, syscall.ENOSPC },
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := os.Stat("/dev/full"); name == "device" && err != nil {
				t.Skip("this system has no /dev/full")
			}
			dir := t.TempDir()
			made := 0
			w, err := newWriter(dir, Meta{Run: "x"}, nil, 4, func(n string) (file, error) {
				if made++; made > 2 {
					return full()
				}
				return os.Create(n)
			})
			require.NoError(t, err)
			records := fakeRun(4, 1, 4, 10)
			for _, r := range records[:11] {
				require.NoError(t, w.Record(r))
			}
			err = w.Record(records[11])
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.ErrorContains(t, err, "records: write "+filepath.Join(dir, "records-000003.parquet")+" (4 records are lost; earlier segments are complete): ")
			require.ErrorContains(t, err, "no space left on device")
			require.Equal(t, err, w.Record(records[12]))
			require.NoError(t, w.Close()) // it was returned before
			same(t, records[:8], read(t, dir))
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 2)
		})
	}
}

// An error in the background reaches the caller by the next Record, or by Close.
func TestErrorInBackground(t *testing.T) {
	broken := errors.New("broken")
	for _, more := range []bool{true, false} {
		clock := make(manual)
		w, err := newWriter(t.TempDir(), Meta{Run: "x"}, clock, 100, func(string) (file, error) { return failing{broken}, nil })
		require.NoError(t, err)
		record := fakeRun(1, 1, 1, 1)[0]
		require.NoError(t, w.Record(record))
		clock.tick()
		if more {
			require.ErrorIs(t, w.Record(record), broken)
			require.NoError(t, w.Close())
		} else {
			require.ErrorIs(t, w.Close(), broken)
		}
	}
}

// A real file system that fills up.
func TestDiskFullTmpfs(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("no tmpfs can be mounted here: %v", err)
	}
	defer func() { require.NoError(t, syscall.Unmount(dir, 0)) }()
	w, err := newWriter(dir, Meta{Run: "x"}, nil, 100, func(n string) (file, error) { return os.Create(n) })
	require.NoError(t, err)
	records := fakeRun(5, 1, 10, 1000)
	taken := 0
	for _, r := range records {
		if err = w.Record(r); err != nil {
			break
		}
		taken++
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, w.Close())
	got := read(t, dir)
	require.NotEmpty(t, got)
	same(t, records[:taken/100*100], got)
}
