package experiments

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// evict drops a file from the page cache. The error says that the system kept it, as
// it does with files of which another process has pages mapped.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // unwritten pages stay
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return fmt.Errorf("drop %s from the page cache: %w", path, err)
	}
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
		return nil // an older system doesn't tell
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if kept := int64(stat.Cache) * int64(os.Getpagesize()); kept > info.Size()/50+1<<20 {
		return fmt.Errorf("drop %s from the page cache: %d of %d bytes stay; it must lie on a disk, and no other process may have it mapped", path, kept, info.Size())
	}
	return nil
}
