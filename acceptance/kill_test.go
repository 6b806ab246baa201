package acceptance

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childDir is the environment variable that makes the test binary a writer which
// never stops.
const childDir = "EXACTA_TEST_RECORDS_DIR"

// child records about 5,000 records a second; TotalNs is the wall time at which
// each was taken.
func child(dir string) {
	w, err := NewWriter(dir, Meta{Run: "killed"})
	if err != nil {
		os.Exit(3)
	}
	for step := int64(0); ; step++ {
		r := *fakeRun(uint64(step), 1, 1, 3)[2]
		r.Step, r.TotalNs = step, time.Now().UnixNano()
		if w.Record(&r) != nil {
			os.Exit(3)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// After kill -9 everything but at most the last two seconds is readable, without
// a gap, whatever the writer was at: just after a segment, between two, and about
// when the next is due.
func TestKill(t *testing.T) {
	for _, after := range []time.Duration{0, 400 * time.Millisecond, segmentAge} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			killed := killChild(t, dir, 2, after)

			// As if it had been hit while it wrote.
			numbers, err := segments(dir)
			require.NoError(t, err)
			half := filepath.Join(dir, segmentName(len(numbers)+1)+".tmp")
			require.NoError(t, os.WriteFile(half, []byte("PAR1 and no more"), 0o644))

			records := read(t, dir)
			require.NotEmpty(t, records)
			for i, r := range records {
				require.Equal(t, int64(i), r.Step)
			}
			missing := killed.Sub(time.Unix(0, records[len(records)-1].TotalNs))
			t.Logf("%d records in %d segments; the last %v are missing", len(records), len(numbers), missing.Round(time.Millisecond))
			require.Less(t, missing, 2*time.Second)
		})
	}
}

// killChild starts a writer in dir, waits for a number of segments and then as
// long as is said, and kills it. It returns when.
func killChild(t *testing.T, dir string, count int, after time.Duration) time.Time {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed before it did
	begun := time.Now()
	for numbers := []int(nil); len(numbers) < count; time.Sleep(time.Millisecond) {
		numbers, err = segments(dir)
		require.NoError(t, err)
		require.Less(t, time.Since(begun), time.Minute, "the child writes no segments")
	}
	time.Sleep(after)
	killed := time.Now()
	require.NoError(t, cmd.Process.Kill())
	require.EqualError(t, cmd.Wait(), "signal: killed")
	return killed
}
