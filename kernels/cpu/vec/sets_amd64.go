package vec

import "golang.org/x/sys/cpu"

// machineSets returns the sets of this machine that are not portable.
func machineSets() []*Set {
	var sets []*Set
	avx512 := cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL
	if avx512 && cpu.X86.HasAVX512BF16 {
		s := avx512Set("avx512bf16")
		s.Gemm, s.Peak = dotGemm, dotPeak
		if dotIsSlow() {
			s.Gemm = dotThenFMAGemm
		}
		sets = append(sets, s)
	}
	if avx512 {
		sets = append(sets, avx512Set("avx512f"))
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		sets = append(sets, avx2Set())
	}
	return sets
}

// avx512Set returns the primitives that both AVX-512 sets share, with Gemm by
// FMA.
func avx512Set(name string) *Set {
	s := goSet
	s.Name, s.MaxM4, s.MaxM2 = name, rows4, rows2
	s.Gemm, s.Peak = fmaGemm, fmaPeak
	return &s
}

func avx2Set() *Set {
	s := goSet
	s.Name, s.MaxM4, s.MaxM2 = "avx2", 6, 12
	s.Gemm, s.Peak = avx2Gemm, avx2Peak
	return &s
}

// Pause executes a PAUSE instruction: what a spin loop does between two looks at
// its variable.
func Pause()
