package gguf

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Type is the element type of a tensor, by its number in the file.
type Type uint32

// The types that Expand knows.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q5_0 Type = 6
	Q5_1 Type = 7
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
)

// typeInfo is the layout of a type: block elements take size bytes.
type typeInfo struct {
	name        string
	block, size int
	expand      func(dst []float32, src []byte) // of one block; nil: not supported
}

// types holds every type of the format, so that sizes can be checked and errors
// can name what a file has.
var types = map[Type]typeInfo{
	F32:  {"F32", 1, 4, expandF32},
	F16:  {"F16", 1, 2, expandF16},
	BF16: {"BF16", 1, 2, expandBF16},
	Q4_0: {"Q4_0", 32, 18, expandQ4_0},
	Q4_1: {"Q4_1", 32, 20, expandQ4_1},
	Q5_0: {"Q5_0", 32, 22, expandQ5_0},
	Q5_1: {"Q5_1", 32, 24, expandQ5_1},
	Q8_0: {"Q8_0", 32, 34, expandQ8_0},
	Q4_K: {"Q4_K", 256, 144, expandQ4_K},
	Q5_K: {"Q5_K", 256, 176, expandQ5_K},
	Q6_K: {"Q6_K", 256, 210, expandQ6_K},

	9: {"Q8_1", 32, 40, nil}, 10: {"Q2_K", 256, 84, nil}, 11: {"Q3_K", 256, 110, nil}, 15: {"Q8_K", 256, 292, nil},
	16: {"IQ2_XXS", 256, 66, nil}, 17: {"IQ2_XS", 256, 74, nil}, 18: {"IQ3_XXS", 256, 98, nil}, 19: {"IQ1_S", 256, 50, nil},
	20: {"IQ4_NL", 32, 18, nil}, 21: {"IQ3_S", 256, 110, nil}, 22: {"IQ2_S", 256, 82, nil}, 23: {"IQ4_XS", 256, 136, nil},
	24: {"I8", 1, 1, nil}, 25: {"I16", 1, 2, nil}, 26: {"I32", 1, 4, nil}, 27: {"I64", 1, 8, nil}, 28: {"F64", 1, 8, nil},
	29: {"IQ1_M", 256, 56, nil}, 34: {"TQ1_0", 256, 54, nil}, 35: {"TQ2_0", 256, 66, nil},
	39: {"MXFP4", 32, 17, nil}, 40: {"NVFP4", 64, 36, nil}, 41: {"Q1_0", 128, 18, nil},
}

// String is the name of the type, such as "Q4_K".
func (t Type) String() string {
	if info, ok := types[t]; ok {
		return info.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Known reports whether the format has the type, so that Size can tell sizes.
func (t Type) Known() bool { return types[t].block > 0 }

// Supported reports whether Expand knows the type.
func (t Type) Supported() bool { return types[t].expand != nil }

// Block is the number of elements of a block; 0 for an unknown type.
func (t Type) Block() int { return types[t].block }

// Size is the number of bytes of n elements, a multiple of Block.
func (t Type) Size(n int) int { return n / types[t].block * types[t].size }

// Expand writes the values of the blocks in src, a whole number of them, to dst,
// which has an element for each. It must not be called for a type that is not
// supported.
func (t Type) Expand(dst []float32, src []byte) {
	info := types[t]
	for len(src) >= info.size {
		info.expand(dst[:info.block:info.block], src[:info.size:info.size])
		dst, src = dst[info.block:], src[info.size:]
	}
}

// SupportedTypes names the types that Expand knows, in the order of their numbers.
func SupportedTypes() string {
	var names []string
	for _, t := range slices.SortedFunc(maps.Keys(types), cmp.Compare[Type]) {
		if t.Supported() {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, ", ")
}
