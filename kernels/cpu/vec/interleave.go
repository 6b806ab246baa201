package vec

import (
	"encoding/binary"
	"unsafe"
)

// LaneRows is the number of rows that Interleave takes: those of a vector.
const LaneRows = 16

// goInterleave is Interleave of the Go set.
func goInterleave(dst *uint32, src *byte, line, blocks int) (odd uint64) {
	if blocks <= 0 {
		return 0
	}
	out := unsafe.Slice(dst, (LaneRows*blocks-1)*PanelRows+LaneRows)
	in := unsafe.Slice(src, (LaneRows-1)*line+4*LaneRows*blocks)
	for b := range blocks {
		for r := range LaneRows {
			row := in[r*line+4*LaneRows*b:][:4*LaneRows]
			for i := range LaneRows {
				pair := binary.LittleEndian.Uint32(row[4*i:])
				out[(LaneRows*b+i)*PanelRows+r] = pair
				// A carry into the sign exactly if all bits of an exponent are set.
				low, high := pair<<16&0x7f800000, pair&0x7f800000
				odd |= uint64(((low + 0x00800000) | (high + 0x00800000)) >> 31)
			}
		}
	}
	return odd
}
