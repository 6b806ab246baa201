package gguf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of what a header may ask for, far above every file that exists.
const (
	maxHeader  = 512 << 20 // bytes of the tables
	maxValues  = 1 << 16
	maxTensors = 1 << 18
	maxKey     = 1<<16 - 1 // bytes of a key, as the format has it
	maxName    = 1 << 10   // bytes of a tensor's name
	maxDims    = 4
	maxNesting = 4 // of arrays

	defaultAlignment = 32
	maxAlignment     = 1 << 20
)

// File is a parsed header; the values and tensors are views of the file's bytes.
type File struct {
	Version uint32
	Keys    []string // in the order of the file
	Values  map[string]Value
	Tensors []Tensor // by offset
	Header  []byte   // everything before the data
}

// Tensor is one array of the file.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // row-major, the last dimension is the file's first
	Data  []byte
}

// Parse reads the tables of a file that data holds whole. An error names the key
// or tensor and says what would be right.
func Parse(data []byte) (*File, error) {
	r := &reader{p: data[:min(len(data), maxHeader)], cut: len(data) > maxHeader}
	f := &File{Values: map[string]Value{}}
	tensors, err := f.start(r)
	if err != nil {
		return nil, err
	}
	entries, err := readTensors(r, tensors)
	if err != nil {
		return nil, err
	}
	align, err := f.alignment()
	if err != nil {
		return nil, err
	}
	at := (r.at + align - 1) / align * align
	if tensors == 0 {
		at = min(at, len(data))
	}
	if at > len(data) {
		return nil, fmt.Errorf("the file ends at byte %d, before its data begin at %d: it is truncated", len(data), at)
	}
	f.Header = data[:at]
	if f.Tensors, err = place(entries, data[at:], align); err != nil {
		return nil, err
	}
	return f, nil
}

// start reads the magic, the counts and the metadata, and returns the number of
// tensors.
func (f *File) start(r *reader) (tensors int, err error) {
	if len(r.p) < 24 || string(r.p[:4]) != "GGUF" {
		return 0, errors.New(`the file does not begin with "GGUF"`)
	}
	r.at = 4
	f.Version = r.u32()
	switch f.Version {
	case 2, 3:
	case 2 << 24, 3 << 24:
		return 0, errors.New("the file is big-endian; convert it to little-endian")
	default:
		return 0, fmt.Errorf("version is %d; known are 2 and 3", f.Version)
	}
	nt, nv := r.u64(), r.u64()
	if nt > maxTensors {
		return 0, fmt.Errorf("tensor count is %d; the cap is %d", nt, maxTensors)
	}
	if nv > maxValues {
		return 0, fmt.Errorf("metadata count is %d; the cap is %d", nv, maxValues)
	}
	for i := range int(nv) {
		key, err := r.text(maxKey)
		if err != nil {
			return 0, fmt.Errorf("metadata key %d: %w", i, err)
		}
		if _, ok := f.Values[key]; ok {
			return 0, fmt.Errorf("metadata key %q occurs twice", key)
		}
		v, err := r.value(Kind(r.u32()), maxNesting)
		if err == nil {
			err = r.err()
		}
		if err != nil {
			return 0, fmt.Errorf("metadata key %q: %w", key, err)
		}
		f.Keys, f.Values[key] = append(f.Keys, key), v
	}
	return int(nt), nil
}

// alignment is that of the tensors' data.
func (f *File) alignment() (int, error) {
	v, ok := f.Values["general.alignment"]
	if !ok {
		return defaultAlignment, nil
	}
	n, ok := v.Integer()
	if !ok || n < 8 || n > maxAlignment || n%8 != 0 {
		return 0, fmt.Errorf("general.alignment is not a multiple of 8 up to %d", maxAlignment)
	}
	return int(n), nil
}

// entry is a row of the table of tensors.
type entry struct {
	Tensor
	begin, size int
}

func readTensors(r *reader, n int) ([]entry, error) {
	var out []entry
	seen := map[string]bool{}
	for i := range n {
		name, err := r.text(maxName)
		if err != nil {
			return nil, fmt.Errorf("tensor %d: name: %w", i, err)
		}
		if seen[name] {
			return nil, fmt.Errorf("tensor %q occurs twice", name)
		}
		seen[name] = true
		e, err := r.tensor(name)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		out = append(out, e)
	}
	return out, nil
}

// tensor reads the rest of a row, after its name.
func (r *reader) tensor(name string) (entry, error) {
	e := entry{Tensor: Tensor{Name: name}}
	dims := r.u32()
	if dims == 0 || dims > maxDims {
		return e, fmt.Errorf("it has %d dimensions; it must have 1 to %d", dims, maxDims)
	}
	n := 1
	for range dims {
		d := r.u64()
		if d == 0 || d > math.MaxInt || n > math.MaxInt64/16/int(d) {
			return e, fmt.Errorf("dimension %d: sizes must be positive, and their product must not overflow", d)
		}
		n *= int(d)
		e.Shape = append(e.Shape, int(d))
	}
	slices.Reverse(e.Shape)
	e.Type = Type(r.u32())
	begin := r.u64()
	if err := r.err(); err != nil {
		return e, err
	}
	row := e.Shape[len(e.Shape)-1]
	switch {
	case !e.Type.Known():
		return e, fmt.Errorf("%s is not known; supported are %s", e.Type, SupportedTypes())
	case row%e.Type.Block() != 0:
		return e, fmt.Errorf("rows of %d elements are no whole number of %s blocks of %d", row, e.Type, e.Type.Block())
	case begin > math.MaxInt64:
		return e, fmt.Errorf("offset %d overflows", begin)
	}
	e.begin, e.size = int(begin), e.Type.Size(n)
	return e, nil
}

// place checks the tensors against each other and the data, and gives them their
// bytes. Between tensors, and after the last, only padding to the alignment may be.
func place(entries []entry, data []byte, align int) ([]Tensor, error) {
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.begin, b.begin) })
	at, prev := 0, "the start of the data"
	var out []Tensor
	for _, e := range entries {
		switch {
		case e.begin%align != 0:
			return nil, fmt.Errorf("tensor %q begins at byte %d of the data; it must be a multiple of the alignment, %d", e.Name, e.begin, align)
		case e.begin < at:
			return nil, fmt.Errorf("tensor %q begins at byte %d of the data, before the end of %q at %d: they overlap", e.Name, e.begin, prev, at)
		case e.begin-at >= align:
			return nil, fmt.Errorf("hole of %d bytes before tensor %q, after %s", e.begin-at, e.Name, prev)
		case e.size > len(data) || e.begin > len(data)-e.size:
			return nil, fmt.Errorf("tensor %q needs %d bytes from byte %d of the data on, which has %d: the file is truncated or its header wrong", e.Name, e.size, e.begin, len(data))
		}
		at, prev = e.begin+e.size, e.Name
		e.Data = data[e.begin:at:at]
		out = append(out, e.Tensor)
	}
	if left := len(data) - at; left >= align {
		return nil, fmt.Errorf("%d bytes follow %s, the last", left, prev)
	}
	return out, nil
}
