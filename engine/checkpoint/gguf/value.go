package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Kind is the type of a metadata value, by its number in the file.
type Kind uint32

// The kinds of values.
const (
	Uint8 Kind = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
)

var kinds = [...]struct {
	name string
	size int // bytes; 0: it varies
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

// String is the name of the kind.
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Value is one metadata value: a view of the file's bytes. The zero Value, of a key
// that is not there, is of no kind that a method asks for.
type Value struct {
	Kind Kind
	Elem Kind // of an Array
	N    int  // elements of an Array
	raw  []byte
}

// Text is a String's text.
func (v Value) Text() (string, bool) { return string(v.raw), v.Kind == String }

// Truth is a Bool's value.
func (v Value) Truth() (value, ok bool) { return v.Kind == Bool && v.raw[0] != 0, v.Kind == Bool }

// Integer is the value of any integer kind that fits an int64.
func (v Value) Integer() (int64, bool) { return integer(v.Kind, v.raw) }

// Number is the value of any numeric kind. A float32 is given by its shortest
// decimal text, so that 1e-5 stays 1e-5.
func (v Value) Number() (float64, bool) {
	switch v.Kind {
	case Float32:
		f := math.Float32frombits(binary.LittleEndian.Uint32(v.raw))
		return shortest(f), true
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.raw)), true
	}
	n, ok := v.Integer()
	return float64(n), ok
}

// Texts is the texts of an Array of strings.
func (v Value) Texts() ([]string, bool) {
	if v.Kind != Array || v.Elem != String {
		return nil, false
	}
	out := make([]string, 0, v.N)
	for p := v.raw; len(out) < v.N; {
		n := int(binary.LittleEndian.Uint64(p))
		out = append(out, string(p[8:8+n]))
		p = p[8+n:]
	}
	return out, true
}

// Integers is the values of an Array of integers.
func (v Value) Integers() ([]int64, bool) {
	if v.Kind != Array {
		return nil, false
	}
	return list(v, integer)
}

// Float32s is the values of an Array of float32.
func (v Value) Float32s() ([]float32, bool) {
	if v.Kind != Array {
		return nil, false
	}
	return list(v, func(k Kind, p []byte) (float32, bool) {
		if k != Float32 {
			return 0, false
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(p)), true
	})
}

func list[T any](v Value, element func(Kind, []byte) (T, bool)) ([]T, bool) {
	size := kinds[v.Elem].size
	if size == 0 {
		return nil, v.N == 0
	}
	if v.N > 0 {
		if _, ok := element(v.Elem, v.raw[:size]); !ok {
			return nil, false
		}
	}
	out := make([]T, v.N)
	for i := range out {
		var ok bool
		if out[i], ok = element(v.Elem, v.raw[i*size:(i+1)*size]); !ok {
			return nil, false
		}
	}
	return out, true
}

func integer(k Kind, p []byte) (int64, bool) {
	if len(p) == 0 { // the zero Value
		return 0, false
	}
	switch k {
	case Uint8:
		return int64(p[0]), true
	case Int8:
		return int64(int8(p[0])), true
	case Uint16:
		return int64(binary.LittleEndian.Uint16(p)), true
	case Int16:
		return int64(int16(binary.LittleEndian.Uint16(p))), true
	case Uint32:
		return int64(binary.LittleEndian.Uint32(p)), true
	case Int32:
		return int64(int32(binary.LittleEndian.Uint32(p))), true
	case Int64, Uint64:
		n := int64(binary.LittleEndian.Uint64(p))
		return n, k == Int64 || n >= 0
	}
	return 0, false
}

// shortest is the float64 that f's shortest decimal text means.
func shortest(f float32) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	if err != nil {
		return float64(f)
	}
	return v
}
