package vec

import "golang.org/x/sys/cpu"

// hiddenSets returns the kernels of VDPBF16PS and those of Stream as sets of
// their own.
func hiddenSets() (sets []*Set) {
	if cpu.X86.HasAVX512BF16 {
		s := avx512Set("vdpbf16ps")
		s.Gemm, s.Peak = dotGemm, dotPeak
		sets = append(sets, s)
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
		s := avx512Set("avx512f stream")
		s.Gemm = func(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool) {
			fmaStream(out, outStride, panel, panel, vecs, x, xStride, m, k2, load)
		}
		sets = append(sets, s)
	}
	return sets
}
