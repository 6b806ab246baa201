package vec

import (
	"sync"
	"time"
	"unsafe"
)

// Rows of a tile of the AVX-512 kernels by vectors: 28 accumulators.
const rows4, rows2 = 7, 14

// blockPairs is how many pairs of k the parts of a panel take in turn: 64 KiB of
// weights, which stay in the second level cache from the first part to the last,
// so that memory is read forward.
const blockPairs = 256

// How far ahead of its loads a kernel that reads whole panels prefetches, in bytes:
// measured, and flat around the best. One or two rows of VDPBF16PS wait for memory
// so soon that less is better.
const streamAhead, dotAhead = 2048, 1536

// kernelTable has the AVX-512 kernels of one kind by vectors and rows.
type kernelTable [5][15]gemmKernel

// streamRows is the largest number of rows that fmaStream takes one vector wide.
const streamRows = 12

// gemm runs the kernels of t over m rows.
func (t *kernelTable) gemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2, ahead int, load bool) {
	switch {
	case m < 1:
	case vecs == 4 && m <= rows4:
		t[4][m](out, outStride, panel, x, xStride, k2, ahead, load)
	default:
		parts(t[2][:rows2+1], 2, vecs, out, outStride, panel, nil, x, xStride, m, k2, load)
	}
}

// parts computes m rows with kernels of width vectors, in blocks of k of about one
// size: all rows, at most len(kernels)-1 at a time, of part after part of the vecs
// vectors. Rows do not influence each other and accumulators pass through memory
// unchanged, so the cuts are free. Each part of a block prefetches its share of the
// next block, which after the panel is next or what lies behind it, so that memory is
// asked for in order and all the time.
func parts(kernels []gemmKernel, width, vecs int, out *float32, outStride int, panel, next, x *uint16, xStride, m, k2 int, load bool) {
	most := len(kernels) - 1
	tiles := (m + most - 1) / most
	for blocks := (k2 + blockPairs - 1) / blockPairs; ; blocks-- {
		n := (k2 + blocks - 1) / blocks
		ahead := 256 * n
		if n == k2 && next != nil {
			ahead = int(uintptr(unsafe.Pointer(next)) - uintptr(unsafe.Pointer(panel)))
		}
		for i := range tiles {
			r, rows := m*i/tiles, m*(i+1)/tiles-m*i/tiles
			for v := 0; v < vecs; v += width {
				kernels[rows](advance(out, r*outStride+16*v), outStride, advance(panel, 32*v),
					advance(x, r*xStride), xStride, n, ahead+64*v*(n-1), load)
			}
		}
		if k2 -= n; k2 <= 0 {
			return
		}
		load = true
		panel, x = advance(panel, n*2*PanelRows), advance(x, 2*n)
	}
}

// advance returns p moved by n elements.
func advance[T float32 | uint16](p *T, n int) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(p), uintptr(n)*unsafe.Sizeof(*p)))
}

// fmaGemm is Gemm by AVX-512 FMA.
func fmaGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	gemmFMA.gemm(out, outStride, panel, vecs, x, xStride, m, k2, streamAhead, load)
}

// streamBlocks is how far ahead of a stream kernel the next block is asked for, in
// bytes.
const streamBlocks = 1 << 16

// fmaStream is Stream by AVX-512 FMA. A few rows take a block of a panel one vector at
// a time: measured, that asks for the next block at a pace that memory keeps up
// with, where whole panels ask in bursts. Some more have kernels of their own.
func fmaStream(out *float32, outStride int, panel, next *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	if vecs == 4 && m < len(gemmStream) && gemmStream[max(m, 0)] != nil {
		gemmStream[m](out, outStride, panel, x, xStride, k2, streamBlocks, load)
		return
	}
	width, most := 1, streamRows
	if m > streamRows {
		width, most = 2, rows2
	}
	if m > 0 {
		parts(gemmFMA[width][:most+1], width, vecs, out, outStride, panel, next, x, xStride, m, k2, load)
	}
}

// dotGemm is Gemm by VDPBF16PS.
func dotGemm(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
	ahead := streamAhead
	if m <= 2 {
		ahead = dotAhead
	}
	gemmDot.gemm(out, outStride, panel, vecs, x, xStride, m, k2, ahead, load)
}

// dotIsSlow reports whether VDPBF16PS does fewer multiply-adds a second than FMA
// on this processor. It takes the better of a few loops of some 20 us each, once
// per process; processors differ by a factor of two in one direction or the
// other, so noise does not matter, and the bits do not depend on the answer.
var dotIsSlow = sync.OnceValue(func() bool {
	const iterations = 1000
	best := func(peak func(int)) time.Duration {
		least := time.Hour
		for range 5 {
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
	switch {
	case m < 1:
	case m == 1 && vecs == 4:
		gemmAVX2[4][1](out, outStride, panel, x, xStride, k2, streamAhead, load)
	case m <= 3:
		parts(gemmAVX2[2][:4], 2, vecs, out, outStride, panel, nil, x, xStride, m, k2, load)
	default:
		parts(gemmAVX2[1][:7], 1, vecs, out, outStride, panel, nil, x, xStride, m, k2, load)
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
