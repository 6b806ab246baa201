//go:build linux && (amd64 || arm64) && !nogpu

package driver

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// tensorAPI holds the section "Tensor Map Object Management" of cuda.h.
type tensorAPI struct {
	// CUresult cuTensorMapEncodeTiled(CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
	//   cuuint32_t tensorRank, void *globalAddress, const cuuint64_t *globalDim,
	//   const cuuint64_t *globalStrides, const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
	//   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
	//   CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
	tensorMapEncodeTiled uintptr
}

func (a *tensorAPI) bindTensor(l *library) {
	a.tensorMapEncodeTiled = l.addr("cuTensorMapEncodeTiled")
}

// TensorMap is a CUtensorMap; it lies at a multiple of 64 bytes in launch parameters.
type TensorMap [128]byte

// Values of CUtensorMapDataType, CUtensorMapSwizzle and CUtensorMapL2promotion.
const (
	tensorBF16       = 9
	tensorSwizzle128 = 3
	tensorPromote256 = 3
)

// tensorShape is what cuTensorMapEncodeTiled reads through pointers.
type tensorShape struct {
	dims    [2]uint64
	stride  uint64
	box     [2]uint32
	element [2]uint32
}

// MapRows describes a BF16 matrix to the copy engine: rows of cols elements, pitch
// bytes apart, of which boxRows by 64 columns are copied at a time, swizzled over 128
// bytes. m lies in the parameter area ([Stream.Params]). Address and pitch must be
// multiples of 16 bytes.
func (s *Stream) MapRows(m *TensorMap, p Ptr, rows, cols int, pitch int64, boxRows int) error {
	shape := s.block.tensor()
	*shape = tensorShape{
		dims: [2]uint64{uint64(cols), uint64(rows)}, stride: uint64(pitch),
		box: [2]uint32{64, uint32(boxRows)}, element: [2]uint32{1, 1},
	}
	base := s.block.tensorAddr
	a := s.args[:12]
	a[0], a[1], a[2], a[3] = uintptr(unsafe.Pointer(m)), tensorBF16, 2, uintptr(p)
	a[4], a[5] = base+unsafe.Offsetof(shape.dims), base+unsafe.Offsetof(shape.stride)
	a[6], a[7] = base+unsafe.Offsetof(shape.box), base+unsafe.Offsetof(shape.element)
	a[8], a[9], a[10], a[11] = 0, tensorSwizzle128, tensorPromote256, 0
	r, _, _ := purego.SyscallN(s.d.tensorMapEncodeTiled, a...)
	if r == 0 {
		return nil
	}
	return s.d.check(Result(r), "cuTensorMapEncodeTiled", fmt.Sprintf("[%d, %d], %d bytes a row, %d rows at a time", rows, cols, pitch, boxRows))
}
