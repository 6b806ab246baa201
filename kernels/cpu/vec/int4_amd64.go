package vec

import "unsafe"

func avx512Int4(out *float32, outStride int, data, meta *byte, x *float32, xStride, m, k, group int) {
	int4Tiles(int4AVX512, out, outStride, data, meta, x, xStride, m, k, group)
}

// avx2Int4 computes 16 outputs after the other 16.
func avx2Int4(out *float32, outStride int, data, meta *byte, x *float32, xStride, m, k, group int) {
	for v := range 2 {
		at := (*byte)(unsafe.Add(unsafe.Pointer(data), 64*v))
		about := (*byte)(unsafe.Add(unsafe.Pointer(meta), int4Block*v))
		int4Tiles(int4AVX2, advance(out, 16*v), outStride, at, about, x, xStride, m, k, group)
	}
}

// int4Tiles cuts m rows into tiles of about one size.
func int4Tiles(kernels []int4Kernel, out *float32, outStride int, data, meta *byte, x *float32, xStride, m, k, group int) {
	tiles := (m + len(kernels) - 1) / len(kernels)
	for i := range tiles {
		r := m * i / tiles
		kernels[m*(i+1)/tiles-r-1](advance(out, r*outStride), outStride, data, meta, advance(x, r*xStride), xStride, k/32, group/32)
	}
}
