package checkpoint

import (
	"fmt"
	"slices"
)

// DType is the element type of a tensor as a safetensors header spells it
// ("BF16"). Every name of the format is known, so that sizes can be checked
// and errors can name the type; the engine computes with BF16, F16 and F32.
type DType string

// The element types that the engine can load as weights.
const (
	BF16 DType = "BF16"
	F16  DType = "F16"
	F32  DType = "F32"
)

// The other element types of the format, known by name and size.
const (
	F64     DType = "F64"
	I64     DType = "I64"
	I32     DType = "I32"
	I16     DType = "I16"
	I8      DType = "I8"
	U64     DType = "U64"
	U32     DType = "U32"
	U16     DType = "U16"
	U8      DType = "U8"
	Bool    DType = "BOOL"
	C64     DType = "C64"
	F8E4M3  DType = "F8_E4M3"
	F8E5M2  DType = "F8_E5M2"
	F8E8M0  DType = "F8_E8M0"
	F8E4M3Z DType = "F8_E4M3FNUZ"
	F8E5M2Z DType = "F8_E5M2FNUZ"
	F6E2M3  DType = "F6_E2M3"
	F6E3M2  DType = "F6_E3M2"
	F4      DType = "F4"
)

// dtypes holds every type with its size in bits, in the order of the format's
// reference implementation, which is that of alignment.
var dtypes = []struct {
	name DType
	bits int
}{
	{Bool, 8}, {F4, 4}, {F6E2M3, 6}, {F6E3M2, 6}, {U8, 8}, {I8, 8},
	{F8E5M2, 8}, {F8E4M3, 8}, {F8E8M0, 8}, {F8E4M3Z, 8}, {F8E5M2Z, 8},
	{I16, 16}, {U16, 16}, {F16, 16}, {BF16, 16},
	{I32, 32}, {U32, 32}, {F32, 32},
	{C64, 64}, {F64, 64}, {I64, 64}, {U64, 64},
}

// rank is the place of a type in that order, -1 for an unknown name.
func (d DType) rank() int {
	for i := range dtypes {
		if dtypes[i].name == d {
			return i
		}
	}
	return -1
}

// Bits is the size of one element in bits, 0 for a name that the format does
// not have.
func (d DType) Bits() int {
	if i := d.rank(); i >= 0 {
		return dtypes[i].bits
	}
	return 0
}

// Size is the size of one element in bytes, 0 for types narrower than a byte
// and for unknown names.
func (d DType) Size() int { return d.Bits() / 8 }

// IsFloat reports whether the engine can load tensors of this type as weights:
// BF16, F16 or F32.
func (d DType) IsFloat() bool { return d == BF16 || d == F16 || d == F32 }

// DTypes returns all the type names of the format, sorted.
func DTypes() []DType {
	all := make([]DType, 0, len(dtypes))
	for _, d := range dtypes {
		all = append(all, d.name)
	}
	slices.Sort(all)
	return all
}

// byteSize is the size in bytes of a tensor of this type and shape. It fails
// on overflow and where the bits do not fill whole bytes.
func (d DType) byteSize(shape []int) (int64, error) {
	total := int64(d.Bits())
	for _, n := range shape {
		if n == 0 {
			return 0, nil
		}
	}
	for _, n := range shape {
		if total > (1<<62)/int64(n) {
			return 0, fmt.Errorf("shape %v of %s overflows", shape, d)
		}
		total *= int64(n)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s is not a whole number of bytes", shape, d)
	}
	return total / 8, nil
}
