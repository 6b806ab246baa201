package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// reader walks the tables. Numbers past the end read as 0; err reports that, and
// texts and arrays fail at once.
type reader struct {
	p   []byte
	at  int
	end bool // something past the end was asked for
	cut bool // the end is that of the tables' cap
}

func (r *reader) err() error {
	switch {
	case r.end && r.cut:
		return fmt.Errorf("the header is larger than %d bytes", maxHeader)
	case r.end:
		return errors.New("the file ends within its header: it is truncated")
	}
	return nil
}

func (r *reader) bytes(n uint64) []byte {
	if r.end || n > uint64(len(r.p)-r.at) {
		r.end = true
		return nil
	}
	b := r.p[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a string of at most most bytes.
func (r *reader) text(most uint64) (string, error) {
	n := r.u64()
	if n > most {
		return "", fmt.Errorf("a text of %d bytes; the cap is %d", n, most)
	}
	b := r.bytes(n)
	if err := r.err(); err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%q is not valid UTF-8", b)
	}
	return string(b), nil
}

// value reads a value of kind k, without looking into arrays of numbers.
func (r *reader) value(k Kind, depth int) (Value, error) {
	v := Value{Kind: k}
	switch {
	case int(k) >= len(kinds):
		return v, fmt.Errorf("%s is not known", k)
	case k == String:
		v.raw = r.bytes(r.u64())
	case k != Array:
		v.raw = r.bytes(uint64(kinds[k].size))
	case depth == 0:
		return v, fmt.Errorf("arrays are nested more than %d deep", maxNesting)
	default:
		v.Elem = Kind(r.u32())
		n := r.u64()
		if int(v.Elem) >= len(kinds) {
			return v, fmt.Errorf("an array of %s, which is not known", v.Elem)
		}
		// Each element takes a byte at least.
		if n > uint64(len(r.p)-r.at) {
			r.end = true
			return v, r.err()
		}
		start := r.at
		v.N = int(n)
		if err := r.elements(v.Elem, v.N, depth); err != nil {
			return v, err
		}
		v.raw = r.p[start:r.at]
	}
	return v, r.err()
}

func (r *reader) elements(k Kind, n, depth int) error {
	if size := kinds[k].size; size > 0 {
		r.bytes(uint64(n) * uint64(size))
		return r.err()
	}
	for range n {
		if _, err := r.value(k, depth-1); err != nil {
			return err
		}
	}
	return nil
}
