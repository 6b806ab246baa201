package experiments

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"exacta.dev/exacta/engine/checkpoint"
)

const (
	coldStreams = 4       // that read the files at once
	coldBlock   = 4 << 20 // bytes that one reads at a time
)

// weightFiles returns the paths of the files that hold the tensors of the checkpoint
// at path.
func weightFiles(path string) (files []string, err error) {
	ck, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	dir := path
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		dir = filepath.Dir(path)
	}
	for _, name := range ck.Names() {
		t, err := ck.Tensor(name)
		if err != nil {
			return nil, err
		}
		files = append(files, filepath.Join(dir, t.File))
	}
	slices.Sort(files)
	return slices.Compact(files), ck.Close()
}

// evictAll drops files from the page cache.
func evictAll(files []string) error {
	for _, path := range files {
		if err := evict(path); err != nil {
			return err
		}
	}
	return nil
}

// readFiles reads files by several streams, each its share of every file, and returns
// the bytes a second.
func readFiles(files []string) (float64, error) {
	var wg sync.WaitGroup
	var bytes [coldStreams]int64
	var errs [coldStreams]error
	start := time.Now()
	for i := range coldStreams {
		wg.Go(func() { bytes[i], errs[i] = readShare(files, i) })
	}
	wg.Wait()
	var total int64
	for _, n := range bytes {
		total += n
	}
	return float64(total) / time.Since(start).Seconds(), errors.Join(errs[:]...)
}

// readShare reads share i of every file.
func readShare(files []string, i int) (total int64, err error) {
	buf := make([]byte, coldBlock)
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return total, err
		}
		info, err := f.Stat()
		if err == nil {
			at, end := info.Size()*int64(i)/coldStreams, info.Size()*int64(i+1)/coldStreams
			var n int64
			n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(f, at, end-at), buf)
			total += n
		}
		if e := f.Close(); err != nil || e != nil {
			return total, errors.Join(err, e)
		}
	}
	return total, nil
}
