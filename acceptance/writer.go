package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	// segmentRows closes a segment early, and bounds one that was made of several.
	segmentRows = 1 << 15
	// mergeAfter is the number of segments that are made into as few as their rows
	// allow.
	mergeAfter = 64
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

// Writer stores the records of a run. Record may be called from one goroutine at
// a time; closing of segments goes on beside it.
type Writer struct {
	dir    string
	meta   Meta
	limit  int // rows of a segment
	merge  int // segments that are merged at a time; 0 merges none
	create func(name string) (file, error)

	mu       sync.Mutex // guards what follows
	rows     []row
	err      error // of the segment that could not be written
	lost     int   // records that were, with it
	reported bool  // Record has returned err
	closed   bool

	writing sync.Mutex // held while a segment is written; guards what follows
	segment int
	small   []part // segments that were not merged
	held    int64  // step of which a tick left records to the next one

	stop      chan struct{}
	stopClock func()
	done      sync.WaitGroup
}

var _ engine.Recorder = (*Writer)(nil)

// NewWriter makes a writer of segments in dir, which must exist and hold no
// records yet. Close it: it has a goroutine.
func NewWriter(dir string, meta Meta) (*Writer, error) {
	clock := time.NewTicker(segmentAge)
	w, err := newWriter(dir, meta, clock.C, segmentRows, func(name string) (file, error) { return os.Create(name) })
	if err != nil {
		clock.Stop()
		return nil, err
	}
	w.stopClock, w.merge = clock.Stop, mergeAfter
	return w, nil
}

// newWriter makes a writer that closes a segment at each tick of a clock, and
// when it has limit rows.
func newWriter(dir string, meta Meta, clock <-chan time.Time, limit int, create func(string) (file, error)) (*Writer, error) {
	old, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(old) > 0 {
		return nil, fmt.Errorf("records: %s already holds records (%s); a run needs a directory of its own", dir, segmentName(old[0]))
	}
	w := &Writer{held: -1, dir: dir, meta: meta, limit: limit, create: create, stop: make(chan struct{}), stopClock: func() {}}
	w.done.Go(func() { w.watch(clock) })
	return w, nil
}

// watch closes a segment at each tick.
func (w *Writer) watch(clock <-chan time.Time) {
	for {
		select {
		case <-w.stop:
			return
		case <-clock:
			_ = w.flush(true) // the next Record, or Close, returns it
		}
	}
}

// Record implements engine.Recorder. Once a segment could not be written (a full
// disk, say) it takes nothing more and returns that error, which names the file;
// records of earlier segments stay readable.
func (w *Writer) Record(r *engine.Record) error {
	w.mu.Lock()
	if w.closed || w.err != nil {
		defer w.mu.Unlock()
		w.reported = w.reported || w.err != nil
		if w.err != nil {
			return w.err
		}
		return fmt.Errorf("records: the writer of %s is closed", w.dir)
	}
	w.rows = append(w.rows, toRow(w.meta.Run, r))
	full := len(w.rows) >= w.limit
	w.mu.Unlock()
	if !full {
		return nil
	}
	err := w.flush(false)
	if err != nil {
		w.mu.Lock()
		w.reported = true
		w.mu.Unlock()
	}
	return err
}

// Close writes what is left and stops the writer. It returns the error of a
// segment that could not be written, unless Record has returned it already. A
// second Close does nothing.
func (w *Writer) Close() error {
	w.mu.Lock()
	closed := w.closed
	w.closed = true
	w.mu.Unlock()
	if closed {
		return nil
	}
	w.stopClock()
	close(w.stop)
	w.done.Wait()
	err := w.flush(false)
	w.writing.Lock()
	w.mergeSmall()
	w.writing.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reported {
		return nil
	}
	return err
}

// flush closes the rows taken so far into a segment; without rows it does nothing.
// With whole, the records of a step whose last ones may be still to come are left for
// the next time, once: a killed process then leaves whole steps.
func (w *Writer) flush(whole bool) error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	rows, err := w.rows, w.err
	w.rows = nil
	if n := open(rows); whole && n > 0 && rows[len(rows)-1].Step != w.held {
		w.held = rows[len(rows)-1].Step
		w.rows = slices.Clone(rows[len(rows)-n:])
		rows = rows[:len(rows)-n]
	}
	w.mu.Unlock()
	if err != nil || len(rows) == 0 {
		return err
	}
	name := filepath.Join(w.dir, segmentName(w.segment+1))
	if err = w.write(name, rows); err != nil {
		err = fmt.Errorf("records: write %s (%d records are lost; earlier segments are complete): %w", name, len(rows), err)
		w.mu.Lock()
		w.err = err
		w.lost += len(rows)
		w.mu.Unlock()
		return err
	}
	w.segment++
	w.small = append(w.small, part{w.segment, len(rows)})
	if w.merge > 0 && len(w.small) >= w.merge {
		w.mergeSmall()
	}
	return nil
}

// open returns the number of rows at the end that are of a step with fewer records
// than sequences so far.
func open(rows []row) (n int) {
	for n < len(rows) && rows[len(rows)-1-n].Step == rows[len(rows)-1].Step {
		n++
	}
	if n > 0 && n >= int(rows[len(rows)-1].Batch) {
		return 0
	}
	return n
}

// Resume lets a writer go on after a segment that could not be written, and returns
// the number of records that were lost with it; without one it does nothing.
func (w *Writer) Resume() (lost int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lost, w.lost, w.err, w.reported = w.lost, 0, nil, false
	return lost
}

// write makes one segment.
func (w *Writer) write(name string, rows []row) (err error) {
	content, err := encode(w.meta, rows)
	if err != nil {
		return err
	}
	return w.store(name, content)
}

// store writes a file under a temporary name, syncs and renames it.
func (w *Writer) store(name string, content []byte) (err error) {
	tmp := name + ".tmp"
	f, err := w.create(tmp)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if e := os.Remove(tmp); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	_, err = f.Write(content)
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

// encode returns the bytes of a segment, sealed.
func encode[R any](meta Meta, rows []R, more ...parquet.WriterOption) ([]byte, error) {
	options := append(more,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.KeyValueMetadata(keySchema, SchemaVersion),
		parquet.KeyValueMetadata(keyRun, meta.Run),
		parquet.KeyValueMetadata(keyChecksum, unsealed),
	)
	for _, k := range slices.Sorted(maps.Keys(meta.Provenance)) {
		options = append(options, parquet.KeyValueMetadata(keyProvenance+k, meta.Provenance[k]))
	}
	var out bytes.Buffer
	err := guard(func() error {
		pw := parquet.NewGenericWriter[R](&out, options...)
		if _, err := pw.Write(rows); err != nil {
			return err
		}
		return pw.Close()
	})
	if err != nil {
		return nil, err
	}
	return out.Bytes(), seal(out.Bytes())
}
