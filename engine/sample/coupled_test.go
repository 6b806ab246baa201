package sample

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/kernels"
)

// slowRace is the Gumbel-max trick as it is written in books.
func slowRace(w []float64, s Stream) int32 {
	best, winner := math.Inf(-1), int32(-1)
	for i, v := range w {
		if v <= 0 {
			continue
		}
		if g := math.Log(v) - math.Log(-math.Log(s.Uniform(uint32(i)))); g > best {
			best, winner = g, int32(i)
		}
	}
	return winner
}

func TestRaceIsGumbelMax(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range 20_000 {
		w := make([]float64, 1+r.IntN(200))
		scale := 10 * r.Float64()
		for j := range w {
			if r.IntN(4) > 0 {
				w[j] = math.Exp(scale * r.NormFloat64())
			}
		}
		top := r.IntN(len(w))
		w[top] += 1
		s := Params{Seed: r.Uint64()}.Stream(Target, i, 0)
		require.Equal(t, slowRace(w, s), kernels.Race(w, int32(top), s))
	}
}

// The draw has the distribution that Process gives: chi-square over positions,
// with filters on. 32.9 is the 0.999 quantile at 12 degrees of freedom.
func TestCoupledSampleDistribution(t *testing.T) {
	const n = 200_000
	logits := []float32{0, 1, 2, -1, 0.5, 3, 2.5, -2, 1.5, 0.25, -0.5, 2.75, 1.25, -3, 0.1, 0.7}
	s := New(Params{Temperature: 1.3, TopK: 13, Seed: 99}, nil)
	probs, err := s.ProcessTo(make([]float32, len(logits)), logits, nil)
	require.NoError(t, err)
	count := make([]float64, len(logits))
	for pos := range n {
		tok, err := s.CoupledSample(logits, nil, pos)
		require.NoError(t, err)
		count[tok]++
		require.Equal(t, tok, s.Params().Coupled(probs, pos))
	}
	chi := 0.0
	for i, c := range count {
		if probs[i] == 0 {
			require.Zero(t, c)
			continue
		}
		e := n * float64(probs[i])
		chi += (c - e) * (c - e) / e
	}
	require.Less(t, chi, 32.9)
}

func TestSample(t *testing.T) {
	p := []float32{0, 0.25, 0, 0.5, 0.25, 0}
	for _, c := range []struct {
		u    float64
		want int32
	}{{0x1p-53, 1}, {0.2499, 1}, {0.25, 3}, {0.7499, 3}, {0.75, 4}, {1 - 0x1p-53, 4}} {
		require.Equal(t, c.want, Sample(p, c.u), "u = %v", c.u)
	}
	require.Equal(t, int32(-1), Sample([]float32{0, 0}, 0.5))
	require.Equal(t, int32(-1), Params{}.Coupled([]float32{0, 0}, 1))
	require.Equal(t, int32(1), SampleWeights([]float64{0, 3}, 0.5))
}

func BenchmarkCoupledSample(b *testing.B) {
	for name, vocab := range map[string]int{"6144": 6144, "151936": 151936} {
		b.Run(name, func(b *testing.B) {
			logits := make([]float32, vocab)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range logits {
				logits[i] = float32(2 * r.NormFloat64())
			}
			s := New(Params{Temperature: 1}, nil)
			pos := 0
			for b.Loop() {
				pos++
				if _, err := s.CoupledSample(logits, nil, pos); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkProcess(b *testing.B) {
	const vocab = 151936
	logits := make([]float32, vocab)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range logits {
		logits[i] = float32(2 * r.NormFloat64())
	}
	for name, p := range map[string]Params{
		"temperature": {Temperature: 1},
		"top-k":       {Temperature: 1, TopK: 50},
		"top-p":       {Temperature: 1, TopP: 0.95},
	} {
		b.Run(name, func(b *testing.B) {
			s := New(p, nil)
			for b.Loop() {
				if _, err := s.Process(logits, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a device draws is what the sampler draws, for parameters that Drawn allows.
func TestDrawRowIsCoupledSample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	require.True(t, Params{Temperature: 1}.Drawn())
	for _, p := range []Params{{}, {Temperature: 1, TopK: 3}, {Temperature: 1, TopP: 0.5}, {Temperature: 1, PresencePenalty: 1}, {Temperature: 1, LogitBias: "1:2"}, {Temperature: 1, Grammar: "a"}} {
		require.False(t, p.Drawn(), "%+v", p)
	}
	for i := range 3000 {
		logits := make([]float32, 2+r.IntN(300))
		for j := range logits {
			logits[j] = float32(8 * r.NormFloat64())
		}
		logits[r.IntN(len(logits))] = float32(math.Inf(-1))
		p := Params{Temperature: 0.05 + 2*r.Float32(), TopP: 1, RepetitionPenalty: 1, Seed: r.Uint64(), Choice: uint32(r.IntN(3)), TopK: -(i % 2)}
		if i%3 == 0 {
			p.MinP = 0.3 * r.Float32()
		}
		require.True(t, p.Drawn())
		s := New(p, nil)
		want, err := s.CoupledSample(logits, nil, i)
		require.NoError(t, err)
		top, err := s.Argmax(logits, nil)
		require.NoError(t, err)
		how := p.Drawing()
		require.Equal(t, want, kernels.DrawRow(make([]float64, len(logits)), logits, top, i, how[:]))
	}
}
