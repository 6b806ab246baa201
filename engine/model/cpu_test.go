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
			requireChoices(t, whole, g)

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

// requireChoices requires the largest logit of each row to be float32's, except where
// the two largest are closer than what transformers' BF16 moves a logit by. Where it
// changes a router's choice, that is much, and it need not be in the same row.
func requireChoices(t *testing.T, have []float32, g golden) {
	t.Helper()
	moved := 0.0
	for i, x := range g.logits {
		moved = max(moved, math.Abs(float64(g.bf16[i])-float64(x)))
	}
	v, ours, theirs := len(g.logits)/len(g.ids), 0, 0
	for r := range g.ids {
		row, want := have[r*v:][:v], g.logits[r*v:][:v]
		i, j := argmax(row), argmax(want)
		if i != j {
			ours++
			require.LessOrEqual(t, float64(want[j]-want[i]), moved, "row %d chooses %d, float32 %d", r, i, j)
		}
		if argmax(g.bf16[r*v:][:v]) != j {
			theirs++
		}
	}
	t.Logf("other choices than float32: %d, transformers' own BF16 %d, of %d", ours, theirs, len(g.ids))
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
