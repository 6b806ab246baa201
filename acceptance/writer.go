package acceptance

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"exacta.dev/exacta/engine"
)

const (
	// segmentAge is how often records are closed into a segment.
	segmentAge = time.Second
	// segmentRows closes a segment early.
	segmentRows = 1 << 15
	// pattern of the segment names, numbered from 1.
	pattern = "records-%06d.parquet"
)

// Meta identifies a run in each of its segments.
type Meta struct {
	Run        string            // unique id
	Provenance map[string]string // configuration, hashes, hardware, revision
}

// file is what a segment is written to.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// Writer stores the records of a run. It may be used from one goroutine at a
// time; closing of segments goes on beside it.
type Writer struct {
	dir    string
	meta   Meta
	create func(name string) (file, error)

	mu      sync.Mutex // guards what follows
	rows    []row
	err     error
	writing sync.Mutex // held while a segment is written; guards segment
	segment int

	stop chan struct{}
	done sync.WaitGroup
}

var _ engine.Recorder = (*Writer)(nil)

// NewWriter makes a writer of segments in dir, which must exist and hold no
// records yet.
func NewWriter(dir string, meta Meta) (*Writer, error) {
	return newWriter(dir, meta, segmentAge, func(name string) (file, error) { return os.Create(name) })
}

func newWriter(dir string, meta Meta, age time.Duration, create func(string) (file, error)) (*Writer, error) {
	old, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		return nil, fmt.Errorf("%s already holds records (%s); a run needs a directory of its own", dir, filepath.Base(old[0]))
	}
	w := &Writer{dir: dir, meta: meta, create: create, stop: make(chan struct{})}
	w.done.Go(func() { w.tick(age) })
	return w, nil
}

// tick closes a segment every so often.
func (w *Writer) tick(age time.Duration) {
	t := time.NewTicker(age)
	defer t.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-t.C:
			w.flush()
		}
	}
}

// Record implements engine.Recorder. It returns the error of a segment that
// could not be written; records of earlier segments stay readable.
func (w *Writer) Record(r *engine.Record) error {
	w.mu.Lock()
	w.rows = append(w.rows, toRow(w.meta.Run, r))
	full, err := len(w.rows) >= segmentRows, w.err
	w.mu.Unlock()
	if err == nil && full {
		err = w.flush()
	}
	return err
}

// Close writes what is left.
func (w *Writer) Close() error {
	close(w.stop)
	w.done.Wait()
	return w.flush()
}

// flush closes the rows taken so far into a segment.
func (w *Writer) flush() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	rows, err := w.rows, w.err
	w.rows = nil
	w.mu.Unlock()
	if err != nil || len(rows) == 0 {
		return err
	}
	name := filepath.Join(w.dir, fmt.Sprintf(pattern, w.segment+1))
	if err = w.write(name, rows); err != nil {
		err = fmt.Errorf("records: write %s (%d records are lost; earlier segments are complete): %w", name, len(rows), err)
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		return err
	}
	w.segment++
	return nil
}

// write makes one segment: temporary name, footer, sync, rename.
func (w *Writer) write(name string, rows []row) (err error) {
	tmp := name + ".tmp"
	f, err := w.create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp))
		}
	}()
	options := []parquet.WriterOption{
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.KeyValueMetadata(keySchema, SchemaVersion),
		parquet.KeyValueMetadata(keyRun, w.meta.Run),
	}
	for _, k := range slices.Sorted(maps.Keys(w.meta.Provenance)) {
		options = append(options, parquet.KeyValueMetadata(keyProvenance+k, w.meta.Provenance[k]))
	}
	pw := parquet.NewGenericWriter[row](f, options...)
	_, err = pw.Write(rows)
	if e := pw.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// segments lists the segments of a directory in order.
func segments(dir string) ([]string, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("records: %w", err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "records-*.parquet"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}
