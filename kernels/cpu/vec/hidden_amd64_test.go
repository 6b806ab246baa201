package vec

import "golang.org/x/sys/cpu"

// hiddenSets returns the VDPBF16PS kernels as a set of their own.
func hiddenSets() []*Set {
	if !cpu.X86.HasAVX512BF16 {
		return nil
	}
	s := avx512Set("vdpbf16ps")
	s.Gemm, s.Peak = dotGemm, dotPeak
	return []*Set{s}
}
