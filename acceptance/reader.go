package acceptance

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"exacta.dev/exacta/engine"
)

// Reader streams the records of a run directory.
type Reader struct {
	dir   string
	names []string
	meta  Meta
}

// Open checks the segments of a run directory: that there are any, that they
// are numbered without a gap, complete, of this schema version and of one run.
func Open(dir string) (*Reader, error) {
	names, err := segments(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("records: %s holds no records-*.parquet", dir)
	}
	r := &Reader{dir: dir, names: names}
	for i, name := range names {
		if want := fmt.Sprintf(pattern, i+1); filepath.Base(name) != want {
			return nil, fmt.Errorf("records: %s holds %s where %s is expected; a segment is missing", dir, filepath.Base(name), want)
		}
		meta, err := readMeta(name)
		if err != nil {
			return nil, fmt.Errorf("records: %s: %w", name, err)
		}
		if i == 0 {
			r.meta = meta
		} else if meta.Run != r.meta.Run {
			return nil, fmt.Errorf("records: %s is of run %q, %s of run %q; a directory holds one run", name, meta.Run, names[0], r.meta.Run)
		}
	}
	return r, nil
}

// Meta returns the run's id and provenance.
func (r *Reader) Meta() Meta { return r.meta }

// All streams the records in order. After an error it ends.
func (r *Reader) All() iter.Seq2[*engine.Record, error] {
	return func(yield func(*engine.Record, error) bool) {
		last := int64(-1)
		for _, name := range r.names {
			err := readRows(name, func(w *row) error {
				switch {
				case w.Run != r.meta.Run:
					return fmt.Errorf("a record of run %q among those of run %q", w.Run, r.meta.Run)
				case w.Step < last:
					return fmt.Errorf("step %d after step %d; records are out of order", w.Step, last)
				case int(w.Emitted) != len(w.EmittedIDs):
					return fmt.Errorf("step %d, request %s: emitted is %d, emitted_ids has %d", w.Step, w.Request, w.Emitted, len(w.EmittedIDs))
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

// readMeta checks a segment's footer and returns its identity.
func readMeta(name string) (meta Meta, err error) {
	err = withFile(name, func(f *parquet.File) error {
		meta, err = metaOf(f)
		return err
	})
	return meta, err
}

func metaOf(f *parquet.File) (Meta, error) {
	m := Meta{Provenance: map[string]string{}}
	version := ""
	for _, kv := range f.Metadata().KeyValueMetadata {
		switch {
		case kv.Key == keySchema:
			version = kv.Value
		case kv.Key == keyRun:
			m.Run = kv.Value
		case strings.HasPrefix(kv.Key, keyProvenance):
			m.Provenance[strings.TrimPrefix(kv.Key, keyProvenance)] = kv.Value
		}
	}
	switch {
	case version == "":
		return m, fmt.Errorf("not a file of exacta records: no %s in its metadata", keySchema)
	case version != SchemaVersion:
		return m, fmt.Errorf("schema version %s; this program reads version %s", version, SchemaVersion)
	}
	have := f.Schema()
	for _, c := range parquet.SchemaOf(row{}).Columns() {
		got, ok := have.Lookup(c...)
		if !ok {
			return m, fmt.Errorf("column %s is missing", strings.Join(c, "."))
		}
		want, _ := parquet.SchemaOf(row{}).Lookup(c...)
		if got.Node.Type().Kind() != want.Node.Type().Kind() {
			return m, fmt.Errorf("column %s is of type %s; want %s", strings.Join(c, "."), got.Node.Type(), want.Node.Type())
		}
	}
	return m, nil
}

// readRows streams the rows of a segment.
func readRows(name string, each func(*row) error) error {
	return withFile(name, func(f *parquet.File) error {
		r := parquet.NewGenericReader[row](f)
		defer r.Close()
		batch := make([]row, 256)
		for {
			clear(batch)
			n, err := 0, error(nil)
			if e := guard(func() error { n, err = r.Read(batch); return nil }); e != nil {
				return e
			}
			for i := range batch[:n] {
				if e := each(&batch[i]); e != nil {
					return e
				}
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return io.ErrUnexpectedEOF
			}
		}
	})
}

// withFile opens a Parquet file. The library panics on some damaged files; here
// that is an error (guard).
func withFile(name string, f func(*parquet.File) error) (err error) {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return withReader(file, info.Size(), f)
}

func withReader(r io.ReaderAt, size int64, f func(*parquet.File) error) error {
	var pf *parquet.File
	err := guard(func() (err error) {
		pf, err = parquet.OpenFile(r, size)
		return err
	})
	if err != nil {
		return fmt.Errorf("damaged or unfinished file: %w", err)
	}
	return f(pf)
}

// guard turns a panic of the Parquet library into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("damaged file: %v", p)
		}
	}()
	return f()
}
