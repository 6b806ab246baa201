package vec

import (
	"sync"
	"time"
	"unsafe"
)

// Rows of a tile of the AVX-512 kernels by vectors: 28 accumulators.
const rows4, rows2 = 7, 14

// blockPairs is how many pairs of k the halves of a panel take in turn when more
// than rows4 rows want a whole panel: 64 KiB of weights, which stay in the second
// level cache between the two, so that memory is read forward.
const blockPairs = 256

// streamAhead is how far ahead of its loads a kernel that reads whole panels
// prefetches, in bytes.
const streamAhead = 2048

// kernelTable has the AVX-512 kernels of one kind by vectors and rows.
type kernelTable [5][15]gemmKernel

// gemm runs the kernels of t over m rows. Rows do not influence each other and
// accumulators pass through memory unchanged, so the cuts are free.
func (t *kernelTable) gemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	tile := rows2
	if vecs == 4 && m <= rows4 {
		tile = rows4
	}
	for ; m > 0; m -= tile {
		n := min(m, tile)
		if vecs == 4 && n > rows4 {
			t.halves(out, outStride, panel, x, xStride, n, k2, load)
		} else {
			t[vecs][n](out, outStride, panel, x, xStride, k2, streamAhead, load)
		}
		out = (*float32)(unsafe.Add(unsafe.Pointer(out), 4*n*outStride))
		x = (*uint16)(unsafe.Add(unsafe.Pointer(x), 2*n*xStride))
	}
}

// halves computes 8 to 14 rows of a whole panel, one half after the other in
// blocks of k. Each half of a block prefetches half of the next block, so that
// memory is asked for in order and all the time.
func (t *kernelTable) halves(out *float32, outStride int, panel, x *uint16, xStride, m, k2 int, load bool) {
	f := t[2][m]
	for {
		n := min(k2, blockPairs)
		f(out, outStride, panel, x, xStride, n, 256*n, load)
		f((*float32)(unsafe.Add(unsafe.Pointer(out), 128)), outStride, (*uint16)(unsafe.Add(unsafe.Pointer(panel), 128)), x, xStride, n, 384*n-128, load)
		if k2 -= n; k2 <= 0 {
			return
		}
		load = true
		panel = (*uint16)(unsafe.Add(unsafe.Pointer(panel), n*4*PanelRows))
		x = (*uint16)(unsafe.Add(unsafe.Pointer(x), 4*n))
	}
}

// fmaGemm is Gemm by AVX-512 FMA.
func fmaGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	gemmFMA.gemm(out, outStride, panel, vecs, x, xStride, m, k2, load)
}

// dotGemm is Gemm by VDPBF16PS.
func dotGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	gemmDot.gemm(out, outStride, panel, vecs, x, xStride, m, k2, load)
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
	case m == 1:
		width = vecs
	case m <= 3:
		width, tile = 2, 3
	}
	for ; m > 0; m -= tile {
		n := min(m, tile)
		for v := 0; v < vecs; v += width {
			gemmAVX2[width][n]((*float32)(unsafe.Add(unsafe.Pointer(out), 64*v)), outStride,
				(*uint16)(unsafe.Add(unsafe.Pointer(panel), 64*v)), x, xStride, k2, streamAhead, load)
		}
		out = (*float32)(unsafe.Add(unsafe.Pointer(out), 4*n*outStride))
		x = (*uint16)(unsafe.Add(unsafe.Pointer(x), 2*n*xStride))
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
