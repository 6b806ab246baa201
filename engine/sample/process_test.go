package sample

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomParams(r *rand.Rand) Params {
	p := Params{Temperature: 0.1 + 2*r.Float32(), Seed: r.Uint64(), Choice: uint32(r.IntN(3))}
	if r.IntN(8) == 0 {
		p.Temperature = 0
	}
	if r.IntN(2) == 0 {
		p.TopK = r.IntN(12) - 1
	}
	if r.IntN(2) == 0 {
		p.TopP = r.Float32()
	}
	if r.IntN(3) == 0 {
		p.MinP = r.Float32() * r.Float32()
	}
	if r.IntN(2) == 0 {
		p.RepetitionPenalty = 0.5 + r.Float32()
	}
	if r.IntN(2) == 0 {
		p.PresencePenalty = 2*r.Float32() - 1
		p.FrequencyPenalty = 2*r.Float32() - 1
	}
	return p
}

func randomTokens(r *rand.Rand, n, vocab int) []int32 {
	t := make([]int32, n)
	for i := range t {
		t[i] = int32(r.IntN(vocab))
	}
	return t
}

func randomLogits(r *rand.Rand, vocab int) []float32 {
	l := make([]float32, vocab)
	coarse := r.IntN(2) == 0 // many ties
	for i := range l {
		l[i] = float32(r.NormFloat64() * 3)
		if coarse {
			l[i] = float32(math.Round(float64(l[i])))
		}
		if r.IntN(20) == 0 {
			l[i] = float32(math.Inf(-1))
		}
	}
	l[r.IntN(vocab)] = 1
	return l
}

func TestProcessAgainstTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	ws := NewWorkspace()
	for range 20_000 {
		vocab := 1 + r.IntN(40)
		p := randomParams(r)
		prompt, output := randomTokens(r, r.IntN(10), vocab), randomTokens(r, r.IntN(10), vocab)
		logits := randomLogits(r, vocab)
		cut := 0
		if len(output) > 0 {
			cut = r.IntN(len(output) + 1)
		}
		s := New(p, prompt)
		s.Use(ws)
		s.Push(output[:cut]...)
		got, err := s.Process(logits, output[cut:])
		require.NoError(t, err)
		want := twin(p, prompt, output, logits)
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-6, "token %d of %v\nparams %+v", i, want, p)
			require.Equal(t, float32(want[i]) == 0, got[i] == 0, "support at token %d, params %+v", i, p)
		}
		if p.Greedy() {
			top, err := s.Argmax(logits, output[cut:])
			require.NoError(t, err)
			require.Equal(t, float32(1), got[top])
		}
	}
}

// A row with drafts before it gives the bits of plain decoding with those tokens
// pushed, whatever else the workspace has seen.
func TestDraftsAsPushed(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	shared := NewWorkspace()
	for range 2_000 {
		vocab := 2 + r.IntN(300)
		p := randomParams(r)
		prompt, drafts := randomTokens(r, 5, vocab), randomTokens(r, 8, min(vocab, 4))
		spec, plain := New(p, prompt), New(p, prompt)
		spec.Use(shared)
		for i := range drafts {
			logits := randomLogits(r, vocab)
			got, err := spec.Process(logits, drafts[:i])
			require.NoError(t, err)
			want, err := plain.Process(logits, nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
			a, err := spec.CoupledSample(logits, drafts[:i], 100+i)
			require.NoError(t, err)
			b, err := plain.CoupledSample(logits, nil, 100+i)
			require.NoError(t, err)
			require.Equal(t, b, a)
			plain.Push(drafts[i])
		}
	}
}

func TestTiesToLowerID(t *testing.T) {
	logits := []float32{1, 2, 2, 2, 0}
	for _, c := range []struct {
		p    Params
		want []float32
	}{
		{Params{}, []float32{0, 1, 0, 0, 0}},
		{Params{Temperature: 1, TopK: 2}, []float32{0, 0.5, 0.5, 0, 0}},
		{Params{Temperature: 1, TopP: 0.3}, []float32{0, 0.5, 0.5, 0, 0}},
		{Params{Temperature: 1, TopP: 1e-9}, []float32{0, 1, 0, 0, 0}},
		{Params{Temperature: 1, MinP: 1}, []float32{0, 1. / 3, 1. / 3, 1. / 3, 0}},
	} {
		got, err := New(c.p, nil).Process(logits, nil)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c.p)
	}
}

// vLLM's penalties, worked by hand.
func TestPenalties(t *testing.T) {
	p := Params{RepetitionPenalty: 2, PresencePenalty: 0.5, FrequencyPenalty: 0.25}
	s := New(p, []int32{0, 1, 99, -1})
	s.Push(1, 2, 2)
	z, _, err := s.load([]float32{4, 4, -4, 4, 4}, []int32{3, 2, 77})
	require.NoError(t, err)
	require.Equal(t, []float64{
		2,                 // in the prompt only: halved
		2 - 0.25 - 0.5,    // once in the output
		-8 - 3*0.25 - 0.5, // negative: doubled; twice in the output, once in the drafts
		2 - 0.25 - 0.5,    // in the drafts only
		4,                 // unseen
	}, z)
}

func TestRowErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   string
	}{
		{[]float32{0, nan, 1}, "logits: NaN at token 1 of 3; weights or activations are out of range"},
		{[]float32{0, 1, inf}, "logits: +Inf at token 2 of 3; weights or activations are out of range"},
		{[]float32{-inf, -inf}, "logits: none of 2 is finite"},
		{nil, "logits: none of 0 is finite"},
	} {
		for _, p := range []Params{{}, {Temperature: 1}} {
			s := New(p, nil)
			_, err := s.Process(c.logits, nil)
			require.EqualError(t, err, c.want)
			_, err = s.Argmax(c.logits, nil)
			require.EqualError(t, err, c.want)
			_, err = s.CoupledSample(c.logits, nil, 0)
			require.EqualError(t, err, c.want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const vocab = 1000
	logits := randomLogits(r, vocab)
	drafts := randomTokens(r, 4, vocab)
	s := New(Params{Temperature: 0.8, TopK: 50, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.1, PresencePenalty: 0.1}, drafts)
	s.Push(randomTokens(r, 100, vocab)...)
	row := func() {
		p, err := s.Process(logits, drafts)
		if err != nil || Sample(p, s.Stream(Recovery, 3, 1).Uniform(0)) < 0 {
			t.Fatal(err)
		}
		if _, err = s.CoupledSample(logits, drafts, 9); err != nil {
			t.Fatal(err)
		}
		if _, err = s.Argmax(logits, drafts); err != nil {
			t.Fatal(err)
		}
	}
	row()
	require.Zero(t, testing.AllocsPerRun(20, row))
}

func FuzzProcess(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 200, 7}, float32(0.7), 3, float32(0.9), float32(0.1), float32(1.2), float32(0.3))
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte, temp float32, k int, topP, minP, rep, pres float32) {
		p := Params{Temperature: temp, TopK: k, TopP: topP, MinP: minP, RepetitionPenalty: rep, PresencePenalty: pres, Seed: seed}
		if p.Validate() != nil || len(raw) < 5 {
			return
		}
		logits := make([]float32, len(raw)/4)
		for i := range logits {
			logits[i] = math.Float32frombits(uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24)
		}
		s := New(p, []int32{0, int32(raw[0])})
		s.Push(int32(raw[1]))
		probs, err := s.Process(logits, []int32{int32(raw[2]), int32(raw[3])})
		if err != nil {
			require.ErrorAs(t, err, new(*RowError))
			return
		}
		sum := 0.0
		for _, v := range probs {
			require.GreaterOrEqual(t, v, float32(0))
			sum += float64(v)
		}
		require.InDelta(t, 1, sum, 1e-5)
		tok, err := s.CoupledSample(logits, []int32{int32(raw[2]), int32(raw[3])}, 5)
		require.NoError(t, err)
		require.True(t, tok >= 0 && int(tok) < len(logits))
	})
}
