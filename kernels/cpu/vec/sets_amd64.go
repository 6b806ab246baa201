package vec

import (
	"golang.org/x/sys/cpu"

	"exacta.dev/exacta/kernels"
)

// machineSets returns the sets of this machine that are not portable.
func machineSets() []*Set {
	var sets []*Set
	avx512 := cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL
	if avx512 && cpu.X86.HasAVX512BF16 {
		s := avx512Set("avx512bf16")
		s.Peak = dotPeak
		if !dotIsSlow() {
			s.Gemm, s.Stream = dotGemm, nil
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
	return &Set{
		Name: name, MaxM4: rows2, MaxM2: rows2,
		Gemm: fmaGemm, Stream: fmaStream, Int4: avx512Int4, Interleave: interleaveAVX512, Peak: fmaPeak,
		ToBF16:          avx512ToBF16,
		FromBF16:        avx512FromBF16,
		SumSquaresBF16:  avx512SumSquaresBF16,
		SumSquares:      avx512SumSquares,
		ScaleWeightBF16: avx512ScaleWeightBF16,
		ScaleWeight:     avx512ScaleWeight,
		Scale:           avx512Scale,
		Add:             avx512Add,
		Axpy:            avx512Axpy,
		Mul:             avx512Mul,
		DeltaRow:        avx512DeltaRow,
		Max:             avx512Max,
		ExpSub:          avx512ExpSub,
		SiLU:            avx512SiLU,
		Sigmoid:         avx512Sigmoid,
		SwiGLUBF16:      avx512SwiGLUBF16,
		AddBF16:         avx512AddBF16,
		MulSigmoidBF16:  avx512MulSigmoidBF16,
		NormGateBF16:    avx512NormGateBF16,
		MatVec:          avx512MatVec,
		MatVec2:         avx512MatVec2,
		MatVecAdd2:      avx512MatVecAdd2,
		RotateHalf:      avx512RotateHalf,
		Conv4BF16:       avx512Conv4BF16,
		Top2:            avx512Top2,
		ReadAll:         avx2ReadAll,
		HashSegment:     kernels.HashSegmentOf,
	}
}

func avx2Set() *Set {
	return &Set{
		Name: "avx2", MaxM4: 6, MaxM2: 12,
		Gemm: avx2Gemm, Int4: avx2Int4, Interleave: interleaveAVX2, Peak: avx2Peak,
		ToBF16:          avx2ToBF16,
		FromBF16:        avx2FromBF16,
		SumSquaresBF16:  avx2SumSquaresBF16,
		SumSquares:      avx2SumSquares,
		ScaleWeightBF16: avx2ScaleWeightBF16,
		ScaleWeight:     avx2ScaleWeight,
		Scale:           avx2Scale,
		Add:             avx2Add,
		Axpy:            avx2Axpy,
		Mul:             avx2Mul,
		DeltaRow:        avx2DeltaRow,
		Max:             avx2Max,
		ExpSub:          avx2ExpSub,
		SiLU:            avx2SiLU,
		Sigmoid:         avx2Sigmoid,
		SwiGLUBF16:      avx2SwiGLUBF16,
		AddBF16:         avx2AddBF16,
		MulSigmoidBF16:  avx2MulSigmoidBF16,
		NormGateBF16:    avx2NormGateBF16,
		MatVec:          avx2MatVec,
		MatVec2:         avx2MatVec2,
		MatVecAdd2:      avx2MatVecAdd2,
		RotateHalf:      avx2RotateHalf,
		Conv4BF16:       avx2Conv4BF16,
		Top2:            avx2Top2,
		ReadAll:         avx2ReadAll,
		HashSegment:     kernels.HashSegmentOf,
	}
}

// Pause executes a PAUSE instruction: what a spin loop does between two looks at
// its variable.
func Pause()
