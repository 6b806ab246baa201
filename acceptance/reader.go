package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"exacta.dev/exacta/engine"
)

// Reader streams the records of a run directory.
type Reader struct {
	names []string
	meta  Meta
}

// Open checks the segments of a run directory: that there are any, that they
// are numbered without a gap, undamaged, of this schema version and of one run.
// The error names the file, and says what would be right. Unfinished segments,
// which a killed process leaves as .tmp, are passed over.
func Open(dir string) (*Reader, error) {
	numbers, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("records: %s holds no %s; it is not the directory of a run, or nothing was recorded", dir, segmentName(1))
	}
	r := &Reader{}
	next := 1
	for _, n := range numbers {
		if n > next {
			return nil, fmt.Errorf("records: %s holds %s where %s is expected; a segment is missing", dir, segmentName(n), segmentName(next))
		}
		name := filepath.Join(dir, segmentName(n))
		meta, through, err := readMeta(name)
		if err == nil && through != 0 && through <= n {
			err = fmt.Errorf("%s is %d; it must be above the segment's own number", keyThrough, through)
		}
		if err != nil {
			return nil, fmt.Errorf("records: %s: %w", name, err)
		}
		if n == 1 {
			r.meta = meta
		} else if err := r.same(name, meta); err != nil {
			return nil, err
		}
		if n < next {
			continue // part of the one before, left by a process killed while it merged
		}
		next = max(n, through) + 1
		r.names = append(r.names, name)
	}
	return r, nil
}

// same checks that a segment is of the run of the first.
func (r *Reader) same(name string, meta Meta) error {
	if meta.Run != r.meta.Run {
		return fmt.Errorf("records: %s is of run %q, %s of run %q; a directory holds one run", name, meta.Run, r.names[0], r.meta.Run)
	}
	if !maps.Equal(meta.Provenance, r.meta.Provenance) {
		return fmt.Errorf("records: %s is of another run than %s: %s", name, r.names[0], differing(meta.Provenance, r.meta.Provenance))
	}
	return nil
}

// differing names the first key of the provenance that two segments do not agree on.
func differing(a, b map[string]string) string {
	for _, k := range slices.Concat(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b))) {
		if a[k] != b[k] {
			return fmt.Sprintf("%s is %q, there %q", k, a[k], b[k])
		}
	}
	return "their provenance differs"
}

// Meta returns the run's id and provenance.
func (r *Reader) Meta() Meta { return r.meta }

// All streams the records in the order in which they were written: by step, and
// a run of several engines starts again at step 0 with each. After an error it
// ends.
func (r *Reader) All() iter.Seq2[*engine.Record, error] {
	return func(yield func(*engine.Record, error) bool) {
		last := int64(-1)
		for _, name := range r.names {
			err := readRows(name, func(w *row) error {
				if err := w.check(r.meta.Run, last); err != nil {
					return err
				}
				last = w.Step
				if !yield(w.record(), nil) {
					return errStop
				}
				return nil
			})
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("records: %s: %w", name, err))
				return
			}
		}
	}
}

var errStop = errors.New("stop")

// readMeta checks a segment and returns its identity, and the last of the segments that
// it was made of; 0 where it was not merged.
func readMeta(name string) (meta Meta, through int, err error) {
	f, err := openSegment(name)
	if err != nil {
		return meta, 0, err
	}
	err = guard(func() error {
		meta, through, err = metaOf(f)
		return err
	})
	return meta, through, err
}

// metaOf reads the identity in a file's metadata, and checks the schema version
// and the columns.
func metaOf(f *parquet.File) (m Meta, through int, err error) {
	m = Meta{Provenance: map[string]string{}}
	version := ""
	for _, kv := range f.Metadata().KeyValueMetadata {
		switch {
		case kv.Key == keySchema:
			version = kv.Value
		case kv.Key == keyRun:
			m.Run = kv.Value
		case kv.Key == keyThrough:
			if through, err = strconv.Atoi(kv.Value); err != nil {
				return m, 0, fmt.Errorf("%s is %q; it must be the number of a segment", keyThrough, kv.Value)
			}
		case strings.HasPrefix(kv.Key, keyProvenance):
			m.Provenance[strings.TrimPrefix(kv.Key, keyProvenance)] = kv.Value
		}
	}
	switch {
	case version == "":
		return m, 0, fmt.Errorf("not a file of exacta records: no %s in its metadata", keySchema)
	case version != SchemaVersion:
		return m, 0, fmt.Errorf("schema version %s; this program reads version %s", version, SchemaVersion)
	}
	return m, through, checkColumns(f.Schema(), parquet.SchemaOf(row{}))
}

// readRows streams the rows of a segment.
func readRows(name string, each func(*row) error) error {
	f, err := openSegment(name)
	if err != nil {
		return err
	}
	var r *parquet.GenericReader[row]
	if err := guard(func() error { r = parquet.NewGenericReader[row](f); return nil }); err != nil {
		return err
	}
	batch := make([]row, 256)
	for {
		clear(batch)
		n, end := 0, error(nil)
		if err := guard(func() error { n, end = r.Read(batch); return nil }); err != nil {
			return err
		}
		for i := range batch[:n] {
			if err := each(&batch[i]); err != nil {
				return errors.Join(err, r.Close())
			}
		}
		switch {
		case errors.Is(end, io.EOF):
			return r.Close()
		case end != nil:
			return end
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
}

// largestSegment bounds the bytes of a segment that is read: it is held in memory
// whole. segmentRows records of the longest drafts, uncompressed, are far less.
const largestSegment = 1 << 30

// openSegment reads a segment, checks its checksum, and opens it as Parquet.
func openSegment(name string) (*parquet.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > largestSegment {
		return nil, fmt.Errorf("has %d bytes; a segment has at most %d", info.Size(), largestSegment)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := checkSeal(content); err != nil {
		return nil, err
	}
	var f *parquet.File
	err = guard(func() error {
		f, err = parquet.OpenFile(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return fmt.Errorf("not readable as Parquet: %w", err)
		}
		return nil
	})
	return f, err
}

// guard runs calls of the Parquet library, and nothing else, and turns a panic
// into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not readable as Parquet: %v", p)
		}
	}()
	return f()
}
