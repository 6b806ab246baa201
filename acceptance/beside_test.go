package acceptance

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slow is a file that takes its time, so that records arrive while a segment is
// written.
type slow struct{ *os.File }

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return s.File.Write(p)
}

// Records that arrive while a segment is being written, by the clock or because it
// is full, go into a later one: none is lost, doubled, changed or out of order.
func TestRecordBesideFlush(t *testing.T) {
	dir, clock := t.TempDir(), make(chan time.Time)
	w, err := newWriter(dir, Meta{Run: "x"}, clock, 100, func(n string) (file, error) {
		f, err := os.Create(n)
		return slow{f}, err
	})
	require.NoError(t, err)
	stop := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for {
			select {
			case clock <- time.Time{}:
			case <-stop:
				return
			}
		}
	})
	records := fakeRun(31, 1, 5, 1000)
	for i, r := range records {
		require.NoError(t, w.Record(r))
		if i%50 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	ticking.Wait()
	require.NoError(t, w.Close())
	numbers, err := segments(dir)
	require.NoError(t, err)
	require.Greater(t, len(numbers), 10)
	same(t, records, read(t, dir))
}
