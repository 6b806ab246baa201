package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Data is a tensor to be written: Bytes are raw and little-endian, row-major. From,
// where it is set, stands for bytes that are not in memory.
type Data struct {
	Name  string
	DType DType
	Shape []int
	Bytes []byte
	From  io.ReaderAt
}

// WriteSafetensors writes a safetensors file. The tensors are laid out wider
// types first and by name within a type, and the header is padded with spaces
// so that the data begin at a multiple of 8 bytes: byte for byte what the
// reference implementation writes, where metadata has one key at most (it
// fixes no order of several; here they are sorted). metadata may be nil.
func WriteSafetensors(w io.Writer, tensors []Data, metadata map[string]string) error {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b Data) int {
		if d := b.DType.rank() - a.DType.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	head, err := writeHeader(order, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(head)))
	out.Write(n[:])
	out.Write(head)
	for _, t := range order {
		if err := t.write(out); err != nil {
			return fmt.Errorf("write safetensors: tensor %q: %w", t.Name, err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	return nil
}

// writeHeader builds the header, keys in the order of the data.
func writeHeader(order []Data, metadata map[string]string) ([]byte, error) {
	type info struct {
		DType   DType    `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	head := []byte{'{'}
	add := func(key string, value any) error {
		k, err := marshal(key)
		if err != nil {
			return err
		}
		v, err := marshal(value)
		if err != nil {
			return err
		}
		if len(head) > 1 {
			head = append(head, ',')
		}
		head = append(append(append(head, k...), ':'), v...)
		return nil
	}
	if metadata != nil {
		if err := add("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{"__metadata__": true}
	var at int64
	for _, t := range order {
		size, err := t.check()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("name %q is reserved or given twice", t.Name)
		}
		seen[t.Name] = true
		end := at + size
		shape := append([]int{}, t.Shape...) // null is no shape
		if err := add(t.Name, info{t.DType, shape, [2]int64{at, end}}); err != nil {
			return nil, err
		}
		at = end
	}
	head = append(head, '}')
	for len(head)%8 != 0 {
		head = append(head, ' ')
	}
	if len(head) > maxHeader {
		return nil, fmt.Errorf("header has %d bytes; the cap is %d", len(head), maxHeader)
	}
	return head, nil
}

// marshal is json.Marshal without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// write writes the tensor's bytes; what w itself fails of, its Flush tells.
func (t Data) write(w io.Writer) error {
	if t.From == nil {
		_, err := w.Write(t.Bytes)
		return err
	}
	size, err := t.DType.byteSize(t.Shape)
	if err != nil {
		return err
	}
	// Rows are made whole where the reader makes them.
	line := int64(t.DType.Size() * t.Shape[len(t.Shape)-1])
	buf := make([]byte, line*max(1, (1<<20)/line))
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if got, err := t.From.ReadAt(buf[:n], at); int64(got) < n {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// check returns the tensor's size in bytes.
func (t Data) check() (int64, error) {
	if t.DType.Bits() == 0 {
		return 0, fmt.Errorf("dtype %q is not known; known are %v", t.DType, DTypes())
	}
	for _, n := range t.Shape {
		if n < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", t.Shape)
		}
	}
	want, err := t.DType.byteSize(t.Shape)
	if err == nil && t.From == nil && int64(len(t.Bytes)) != want {
		err = fmt.Errorf("shape %v of %s takes %d bytes, but %d are given", t.Shape, t.DType, want, len(t.Bytes))
	}
	return want, err
}

// Float32Data makes an F32 tensor of the values, row-major.
func Float32Data(name string, shape []int, values []float32) Data {
	raw := make([]byte, 0, 4*len(values))
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return Data{Name: name, DType: F32, Shape: shape, Bytes: raw}
}

// Uint16Data makes a BF16 or F16 tensor of the bit patterns, row-major.
func Uint16Data(name string, dtype DType, shape []int, bits []uint16) Data {
	raw := make([]byte, 0, 2*len(bits))
	for _, b := range bits {
		raw = binary.LittleEndian.AppendUint16(raw, b)
	}
	return Data{Name: name, DType: dtype, Shape: shape, Bytes: raw}
}
