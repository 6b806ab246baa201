package metamorphic_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/internal/metamorphic"
	"exacta.dev/exacta/kernels/cpu/vec"
)

var (
	programs = flag.Int("programs", 200, "number of random programs")
	first    = flag.Uint64("seed", 1, "seed of the first program")
)

// tiny is a hybrid with awkward widths: small enough for thousands of steps.
func tiny() model.Source {
	return model.Random{ShapeName: "tiny", Seed: 7, Shape: checkpoint.Config{
		ModelType: "qwen3_5_text", Family: checkpoint.Qwen3_5,
		HiddenSize: 48, IntermediateSize: 72, NumLayers: 4, NumHeads: 4, NumKVHeads: 2, HeadDim: 24,
		VocabSize: 61, MaxPositions: 1024, RMSEps: 1e-6, TieEmbeddings: true, AttnOutputGate: true, MTPLayers: 1, BOS: -1,
		Rope:       checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: 1e4, PartialFactor: 0.25},
		LayerTypes: []checkpoint.LayerKind{checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.LinearAttention, checkpoint.FullAttention},
		GDN:        checkpoint.GDN{NumKHeads: 2, NumVHeads: 4, KDim: 16, VDim: 16, ConvKernel: 4, OutputGate: checkpoint.SiLU},
	}}
}

func kernelSets() []string {
	var names []string
	for _, s := range vec.Sets() {
		names = append(names, s.Name)
	}
	return names
}

// TestPrograms is the proof. make soak runs more programs than the default.
func TestPrograms(t *testing.T) {
	n := *programs
	if testing.Short() {
		n = min(n, 40)
	}
	s := metamorphic.NewSuite(tiny(), kernelSets())
	defer func() { require.NoError(t, s.Close()) }()
	for i := range n {
		p := metamorphic.NewProgram(*first+uint64(i), tiny().Config().VocabSize, kernelSets())
		require.NoError(t, s.Run(p), "run again with: go test ./internal/metamorphic -programs 1 -seed %d\n%s", p.Seed, p)
	}
	t.Logf("coverage: %+v", s.Coverage)
	if n >= 200 {
		require.Empty(t, s.Coverage.Missing(), "never met")
	}
}
