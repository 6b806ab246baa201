package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"exacta.dev/exacta/kernels/cpu/vec"
)

// panel4 packs panel p of a matrix of 4 bits: see vec.Int4Meta for the layout.
func (pk *packer) panel4(p int) error {
	pk.runs = runs(pk.w, pk.t, p, pk.runs)
	for _, r := range pk.runs {
		part := pk.t.Parts[r.part]
		rows, err := part.ReadInt4(r.from, r.n)
		if err != nil {
			return fmt.Errorf("cpu: load %s: part %s: %w", pk.t.Name, part.Name, err)
		}
		groups, line := pk.w.cols/pk.w.int4, pk.w.cols/2
		for i := range r.n {
			data, meta := pk.w.half4(2*p + (r.lane+i)/halfRows)
			o := (r.lane + i) % halfRows
			words := unsafe.Slice((*uint32)(unsafe.Pointer(data)), pk.w.cols/8*halfRows)
			for b := range pk.w.cols / 8 {
				words[b*halfRows+o] = binary.LittleEndian.Uint32(rows.Nibbles[i*line+4*b:])
			}
			about := unsafe.Slice(meta, groups*vec.Int4Meta)
			for g := range groups {
				scale, zero := vec.Int4Place(g, o)
				binary.LittleEndian.PutUint16(about[scale:], uint16(math.Float32bits(rows.Scales[i*groups+g])>>16))
				about[zero] = rows.Zeros[i*groups+g]
			}
		}
	}
	return nil
}

// wideBlock is the number of rows whose float32 numbers a product with a matrix of
// 4 bits keeps in the second-level cache.
func wideBlock(cols int) int { return max(8, wideBytes/4/cols) }

// wideStride is the elements from row to row of them, which spreads the rows over the
// sets of the first-level cache.
func wideStride(cols int) int { return cols + lineBytes/4 }

// widen4 widens rows [r, r+n) of x into w.wide, as the products of 4 bits take them.
func (w *worker) widen4(o *matmulOp, x view, r, n int) {
	for i := range n {
		w.set.FromBF16(w.wide[i*wideStride(o.w.cols):][:o.w.cols], x.u16(r+i))
	}
}

// tiles4 is tiles for a matrix of 4 bits.
func (w *worker) tiles4(o *matmulOp, n, p, half int, out []float32, stride int) {
	first, last := 2*p, 2*p+2
	if half >= 0 {
		first, last = 2*p+half, 2*p+half+1
	}
	for u := first; u < last; u++ {
		data, meta := o.w.half4(u)
		w.set.Int4(&out[(u-first)*halfRows], stride, data, meta, &w.wide[0], wideStride(o.w.cols), n, o.w.cols, o.w.int4)
	}
}
