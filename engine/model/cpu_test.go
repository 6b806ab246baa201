package model_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels/cpu"
)

// TestCPUAgainstTransformers bounds what BF16 activations cost: the root mean
// square deviation of the logits from transformers' float32 is at most 1.5 times
// that of transformers' own BF16. And it holds chunks of any size to the same
// bits.
func TestCPUAgainstTransformers(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			be, err := cpu.New(cpu.Options{Threads: 2})
			require.NoError(t, err)
			defer func() { require.NoError(t, be.Close()) }()
			whole, _ := newRunner(t, be, name).run(0, g.ids, nil)
			rms := relativeRMS(whole, g.logits)
			theirs := relativeRMS(g.bf16, g.logits)
			t.Logf("relative RMS deviation %.2g; transformers' own BF16 %.2g", rms, theirs)
			require.Less(t, rms, 1.5*theirs)

			r := newRunner(t, be, name)
			v := r.m.Config.VocabSize
			for from, n := 0, 1; from < len(g.ids); from, n = from+n, n*2%13+1 {
				to := min(from+n, len(g.ids))
				rows, _ := r.run(from, g.ids[from:to], nil)
				require.Equal(t, bitsOf(whole[from*v:to*v]), bitsOf(rows), "rows %d..%d", from, to)
			}
		})
	}
}

func relativeRMS(have, want []float32) float64 {
	diff, size := 0.0, 0.0
	for i := range want {
		d := float64(have[i]) - float64(want[i])
		diff += d * d
		size += float64(want[i]) * float64(want[i])
	}
	return math.Sqrt(diff / size)
}

func bitsOf(x []float32) []uint32 {
	out := make([]uint32, len(x))
	for i, v := range x {
		out[i] = math.Float32bits(v)
	}
	return out
}
