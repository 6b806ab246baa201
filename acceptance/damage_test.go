package acceptance

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that no writer made is refused by its size, before it is read.
func TestSegmentTooLarge(t *testing.T) {
	dir := put(t, segment(t, "x", nil))
	name := filepath.Join(dir, segmentName(2))
	f, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(largestSegment+1))
	require.NoError(t, f.Close())
	require.Equal(t, "records: DIR/records-000002.parquet: has 1073741825 bytes; a segment has at most 1073741824", problem(t, dir))
}

// What a damaged file states about its lengths costs nothing: memory is bounded by
// the file's size. The damage here is what asks a Parquet reader for most: large
// varints, all over the footer.
func TestDamageIsCheap(t *testing.T) {
	good := segment(t, "x", nil)
	var before, after runtime.MemStats
	for i := len(good) / 2; i < len(good)-8; i += 7 {
		bad := append([]byte(nil), good...)
		copy(bad[i:], []byte{0xff, 0xff, 0xff, 0xff, 0x7f})
		dir := put(t, bad)
		runtime.ReadMemStats(&before)
		require.NotEmpty(t, problem(t, dir), "byte %d", i)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*len(good)+1<<16), "byte %d", i)
	}
}

// FuzzDamage overwrites a stretch of a segment, or cuts it. It must be refused,
// and without a panic.
func FuzzDamage(f *testing.F) {
	good := segment(f, "x", nil)
	f.Add(uint32(4), []byte{0xff, 0xff, 0xff, 0xff, 0x7f}, false)
	f.Add(uint32(len(good)-8), []byte{0xff, 0xff, 0xff, 0x7f}, false)
	f.Add(uint32(len(good)/2), []byte(nil), true)
	f.Fuzz(func(t *testing.T, at uint32, with []byte, cut bool) {
		bad := append([]byte(nil), good...)
		i := int(at) % len(bad)
		copy(bad[i:], with)
		if cut {
			bad = bad[:i]
		}
		p := problem(t, put(t, bad))
		if string(bad) == string(good) {
			require.Empty(t, p)
		} else {
			require.Contains(t, p, "records: DIR/records-000001.parquet: ")
		}
	})
}
