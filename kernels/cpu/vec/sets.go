package vec

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"exacta.dev/exacta/kernels"
)

// Env is the environment variable that names the kernel set when the caller
// does not.
const Env = "EXACTA_KERNELS"

// goSet is the portable set, the definition of the others.
var goSet = Set{
	Name: "go", MaxM4: 6, MaxM2: 12,
	Gemm: goGemm, Int4: goInt4, Interleave: goInterleave,
	ToBF16: goToBF16, FromBF16: goFromBF16,
	SumSquaresBF16: goSumSquaresBF16, SumSquares: goSumSquares,
	ScaleWeightBF16: goScaleWeightBF16, ScaleWeight: goScaleWeight,
	Scale: goScale, Add: goAdd, Axpy: goAxpy, Mul: goMul, DeltaRow: goDeltaRow,
	Max: goMax, ExpSub: goExpSub,
	SiLU: goSiLU, Sigmoid: goSigmoid, SwiGLUBF16: goSwiGLUBF16,
	AddBF16: goAddBF16, MulSigmoidBF16: goMulSigmoidBF16, NormGateBF16: goNormGateBF16,
	MatVec: goMatVec, MatVec2: goMatVec2, MatVecAdd2: goMatVecAdd2,
	RotateHalf: goRotateHalf, Conv4BF16: goConv4BF16,
	Top2: goTop2, HashSegment: kernels.HashSegmentOf, ReadAll: goReadAll,
	Peak: goPeak,
}

// Sets returns the sets that this machine can run, the fastest first; the Go
// set is always the last. It is one list per process; callers must not change it.
func Sets() []*Set { return allSets() }

var allSets = sync.OnceValue(func() []*Set { return append(machineSets(), &goSet) })

// Pick returns the set of that name. The empty name stands for the environment
// variable [Env], and for the fastest set where that is empty too. A name that
// is unknown or that this machine cannot run is an error that lists the sets it
// can.
func Pick(name string) (*Set, error) {
	from := ""
	if name == "" {
		if name = os.Getenv(Env); name == "" {
			return Sets()[0], nil
		}
		from = " (from " + Env + ")"
	}
	var have []string
	for _, s := range Sets() {
		if s.Name == name {
			return s, nil
		}
		have = append(have, s.Name)
	}
	return nil, fmt.Errorf("kernel set %q%s: not available here; this machine has %s", name, from, strings.Join(have, ", "))
}
