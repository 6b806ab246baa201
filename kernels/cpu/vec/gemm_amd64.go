package vec

import (
	"sync"
	"time"
	"unsafe"
)

// rows runs a table's kernels over m rows, at most tile at a time. Rows do not
// influence each other, so the cut is free.
func rows(kernels []gemmKernel, tile int, out *float32, outStride int, panel, x *uint16, xStride, m, k2 int, load bool) {
	for {
		n := min(m, tile)
		kernels[n](out, outStride, panel, x, xStride, k2, load)
		if m -= n; m <= 0 {
			return
		}
		out = (*float32)(unsafe.Add(unsafe.Pointer(out), 4*n*outStride))
		x = (*uint16)(unsafe.Add(unsafe.Pointer(x), 2*n*xStride))
	}
}

// Rows of a tile of the AVX-512 kernels by vectors: 28 accumulators.
const rows4, rows2 = 7, 14

func tile512(vecs int) int {
	if vecs == 4 {
		return rows4
	}
	return rows2
}

// fmaGemm is Gemm by AVX-512 FMA.
func fmaGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	if m > 0 {
		rows(gemmFMA[vecs][:], tile512(vecs), out, outStride, panel, x, xStride, m, k2, load)
	}
}

// dotGemm is Gemm by VDPBF16PS.
func dotGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	if m > 0 {
		rows(gemmDot[vecs][:], tile512(vecs), out, outStride, panel, x, xStride, m, k2, load)
	}
}

// dotThenFMAGemm is Gemm for processors whose VDPBF16PS does fewer
// multiply-adds than FMA: one row, which waits for memory anyway, by VDPBF16PS,
// and more by FMA.
func dotThenFMAGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	if m == 1 {
		gemmDot[vecs][1](out, outStride, panel, x, xStride, k2, load)
		return
	}
	fmaGemm(out, outStride, panel, vecs, x, xStride, m, k2, load)
}

// dotIsSlow reports whether VDPBF16PS does fewer multiply-adds a second than FMA
// on this processor. It takes the better of a few loops of some 20 us each, once
// per process; processors differ by a factor of two in one direction or the
// other, so noise does not matter, and the bits do not depend on the answer.
var dotIsSlow = sync.OnceValue(func() bool {
	const iterations = 1000
	best := func(peak func(int)) time.Duration {
		least := time.Hour
		for range 3 {
			start := time.Now()
			peak(iterations)
			least = min(least, time.Since(start))
		}
		return least
	}
	return best(peakDot) > 2*best(peakFMA)
})

// avx2Gemm is Gemm by AVX2 and FMA. One row takes the whole width, two and three
// rows two vectors at a time, more rows one vector.
func avx2Gemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	width, tile := 1, 6
	switch {
	case m < 1:
		return
	case m == 1:
		width = vecs
	case m <= 3:
		width, tile = 2, 3
	}
	for v := 0; v < vecs; v += width {
		rows(gemmAVX2[width][:], tile, (*float32)(unsafe.Add(unsafe.Pointer(out), 64*v)), outStride,
			(*uint16)(unsafe.Add(unsafe.Pointer(panel), 64*v)), x, xStride, m, k2, load)
	}
}

func dotPeak(iterations int) int64 {
	peakDot(iterations)
	return int64(iterations) * 24 * 32
}

func fmaPeak(iterations int) int64 {
	peakFMA(iterations)
	return int64(iterations) * 24 * 16
}

func avx2Peak(iterations int) int64 {
	peakAVX2(iterations)
	return int64(iterations) * 24 * 8
}
