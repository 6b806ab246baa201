package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// maxHeader is the largest header accepted, in bytes: the cap of the reference
// implementation.
const maxHeader = 100_000_000

// maxDims bounds the number of dimensions of a tensor.
const maxDims = 16

// entry is one tensor of a header: begin and end are relative to the data.
type entry struct {
	name       string
	dtype      DType
	shape      []int
	begin, end int64
}

// header is a parsed and checked safetensors header.
type header struct {
	size     int64    // of the length prefix and the JSON: where the data begin
	sum      [32]byte // SHA-256 of the same
	entries  []entry
	metadata map[string]string
}

// parseHeader reads the header of a safetensors file whose first bytes are
// head (at least the header, when the file has it) and whose total size is
// size bytes, and checks that its tensors account for each byte of the data:
// known types, sizes that agree with shapes, no overlap, no hole, no tail.
func parseHeader(head []byte, size int64) (*header, error) {
	if size < 8 || len(head) < 8 {
		return nil, fmt.Errorf("file has %d bytes; a safetensors file begins with 8 bytes of header length", size)
	}
	n := binary.LittleEndian.Uint64(head)
	switch {
	case n < 2:
		return nil, fmt.Errorf("header length is %d; the least is 2, for {}", n)
	case n > maxHeader:
		return nil, fmt.Errorf("header length is %d; the cap is %d", n, maxHeader)
	case int64(n) > size-8:
		return nil, fmt.Errorf("header length is %d, but only %d bytes follow: the file is truncated or not safetensors", n, size-8)
	case int64(n) > int64(len(head)-8):
		return nil, fmt.Errorf("header of %d bytes was not read", n)
	}
	h := &header{size: 8 + int64(n), sum: sha256.Sum256(head[:8+n])}
	if err := h.parse(head[8 : 8+n]); err != nil {
		return nil, err
	}
	if err := h.checkLayout(size - h.size); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *header) parse(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("header is not valid UTF-8")
	}
	if text[0] != '{' {
		return fmt.Errorf("header begins with %q; it must be a JSON object", text[0])
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	seen := map[string]bool{}
	err := object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("name %q occurs twice", key)
		}
		seen[key] = true
		if key == "__metadata__" {
			return h.parseMetadata(d)
		}
		e, err := parseEntry(d, key)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		h.entries = append(h.entries, e)
		return nil
	})
	if err != nil {
		return jsonError("header", err)
	}
	if rest := bytes.TrimRight(text[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("header has %d bytes after its JSON object", len(rest))
	}
	return nil
}

func (h *header) parseMetadata(d *json.Decoder) error {
	h.metadata = map[string]string{}
	return object(d, func(key string) error {
		if _, ok := h.metadata[key]; ok {
			return fmt.Errorf("__metadata__: key %q occurs twice", key)
		}
		t, err := token(d)
		if err != nil {
			return err
		}
		s, ok := t.(string)
		if !ok {
			return fmt.Errorf("__metadata__: value of %q is %v; it must be a string", key, describe(t))
		}
		h.metadata[key] = s
		return nil
	})
}

func parseEntry(d *json.Decoder, name string) (entry, error) {
	e := entry{name: name}
	var offsets []int64
	var hasShape bool
	seen := map[string]bool{}
	err := object(d, func(key string) error {
		if seen[key] {
			return fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = true
		var err error
		switch key {
		case "dtype":
			e.dtype, err = parseDType(d)
		case "shape":
			hasShape = true
			var dims []int64
			if dims, err = numbers(d, "shape", maxDims); err != nil {
				return err
			}
			for _, n := range dims {
				if n > math.MaxInt {
					return fmt.Errorf("shape: dimension %d overflows", n)
				}
				e.shape = append(e.shape, int(n))
			}
		case "data_offsets":
			offsets, err = numbers(d, "data_offsets", 2)
		default:
			return fmt.Errorf("unknown key %q; known are dtype, shape, data_offsets", key)
		}
		return err
	})
	switch {
	case err != nil:
		return e, err
	case e.dtype == "":
		return e, errors.New("dtype is missing")
	case !hasShape:
		return e, errors.New("shape is missing")
	case len(offsets) != 2:
		return e, fmt.Errorf("data_offsets has %d numbers; it must have 2", len(offsets))
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, e.checkSize()
}

func (e entry) checkSize() error {
	if e.begin > e.end {
		return fmt.Errorf("data_offsets [%d, %d] end before they begin", e.begin, e.end)
	}
	want, err := e.dtype.byteSize(e.shape)
	if err != nil {
		return err
	}
	if got := e.end - e.begin; got != want {
		return fmt.Errorf("shape %v of %s takes %d bytes, but data_offsets [%d, %d] hold %d", e.shape, e.dtype, want, e.begin, e.end, got)
	}
	return nil
}

func parseDType(d *json.Decoder) (DType, error) {
	t, err := token(d)
	if err != nil {
		return "", err
	}
	s, ok := t.(string)
	if !ok {
		return "", fmt.Errorf("dtype is %s; it must be a string", describe(t))
	}
	if DType(s).Bits() == 0 {
		return "", fmt.Errorf("dtype %q is not known; known are %v", s, DTypes())
	}
	return DType(s), nil
}

// checkLayout checks the tensors against each other and against the size of
// the data, and orders them by offset.
func (h *header) checkLayout(data int64) error {
	slices.SortStableFunc(h.entries, func(a, b entry) int {
		if a.begin != b.begin {
			return cmp.Compare(a.begin, b.begin)
		}
		return cmp.Compare(a.end, b.end)
	})
	var at int64
	prev := ""
	for _, e := range h.entries {
		switch {
		case e.end > data:
			return fmt.Errorf("tensor %q ends at byte %d of the data, which has %d: the file is truncated or its header wrong", e.name, e.end, data)
		case e.begin < at:
			return fmt.Errorf("tensors %q and %q overlap: one ends at byte %d, the other begins at %d", prev, e.name, at, e.begin)
		case e.begin > at:
			return fmt.Errorf("hole of %d bytes before tensor %q, at byte %d of the data", e.begin-at, e.name, at)
		}
		at, prev = e.end, e.name
	}
	if at != data {
		return fmt.Errorf("tensors end at byte %d of the data, which has %d", at, data)
	}
	return nil
}
