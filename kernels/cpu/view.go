package cpu

import (
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// buffer is what stands behind the ID of a kernels.Buf.
type buffer struct {
	mem        block
	rows, cols int
	stride     int // bytes from row to row
	kind       kernels.Kind
	live       bool
}

// view is a resolved kernels.Buf.
type view struct {
	p          unsafe.Pointer
	stride     int // bytes from row to row
	rows, cols int
	kind       kernels.Kind
}

func (v *view) none() bool { return v.p == nil }

func (v *view) row(r int) unsafe.Pointer { return unsafe.Add(v.p, r*v.stride) }

func (v *view) u16(r int) []uint16 { return unsafe.Slice((*uint16)(v.row(r)), v.cols) }

func (v *view) f32(r int) []float32 { return unsafe.Slice((*float32)(v.row(r)), v.cols) }

// at returns element 0 of row r of an I32 view.
func (v *view) at(r int) int { return int(*(*int32)(v.row(r))) }

// set writes element 0 of row r of an I32 view.
func (v *view) set(r, x int) { *(*int32)(v.row(r)) = int32(x) }

// bytes returns row r as bytes.
func (v *view) bytes(r int) []byte {
	return unsafe.Slice((*byte)(v.row(r)), v.cols*v.kind.Size())
}

// rowStride spreads wide rows so that the rows of a tile don't fall into the
// same sets of the cache.
func rowStride(k kernels.Kind, cols int) int {
	n := cols * k.Size()
	if k == kernels.I32 || n < lineBytes {
		return n
	}
	n = roundUp(n, lineBytes)
	if n%1024 == 0 {
		n += lineBytes
	}
	return n
}

// tables are the resolved tables of a batch.
type tables struct {
	seq, start, length, rowOff view
	token, pos, parent, span   view
	logit                      view
	spans, rows, logits        int
	maxLen                     int
}

func addBytes(p unsafe.Pointer, n int) unsafe.Pointer { return unsafe.Add(p, n) }

// cell returns element c of row r of an I32 view.
func (v *view) cell(r, c int) int { return int(*(*int32)(unsafe.Add(v.row(r), 4*c))) }

func int32s(p unsafe.Pointer, n int) []int32 { return unsafe.Slice((*int32)(p), n) }
