package verify

import (
	"math/rand/v2"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// toy is a target or a drafter over a small vocabulary: logits are a function of
// the tokens before the row.
type toy struct {
	vocab int
	salt  uint64
	scale float64
	like  *toy    // a drafter: resembles this model
	noise float64 // by how much it differs
}

func (m *toy) logits(history []int32) []float32 {
	h := m.salt
	for _, t := range history {
		h = (h ^ uint64(t+1)) * 0x9e3779b97f4a7c15
		h ^= h >> 31
	}
	r := rand.New(rand.NewPCG(h, 1))
	l := make([]float32, m.vocab)
	for i := range l {
		l[i] = float32(m.scale * r.NormFloat64())
	}
	if m.like != nil {
		for i, v := range m.like.logits(history) {
			l[i] = v + float32(m.noise)*l[i]
		}
	}
	return l
}

// dist is the distribution of the next token, normalised, as float64.
func (m *toy) dist(s *sample.Sampler, prompt, after []int32) []float64 {
	p, err := s.ProcessTo(make([]float32, m.vocab), m.logits(join(prompt, after)), after)
	if err != nil {
		panic(err)
	}
	out := make([]float64, len(p))
	sum := mass(p)
	for i, v := range p {
		out[i] = float64(v) / sum
	}
	return out
}

// constrain compiles the grammar of a sampler's parameters over tokens "a", "b", ...
// of which the last ends the text.
func constrain(t *testing.T, s *sample.Sampler, vocab int) {
	t.Helper()
	pattern := s.Params().Grammar
	if pattern == "" {
		return
	}
	tokens := make([][]byte, vocab)
	for i := range tokens {
		tokens[i] = []byte{byte('a' + i)}
	}
	g, err := grammar.NewVocabulary(tokens, []int32{int32(vocab - 1)}).Compile(pattern)
	require.NoError(t, err)
	s.Constrain(g)
}

func join(a, b []int32) []int32 { return append(append([]int32(nil), a...), b...) }

// verification is what the engine would show a rule when history (whose last
// token is pending) is followed by a draft.
func (m *toy) verification(s *sample.Sampler, history []int32, d engine.Draft) *engine.Verification {
	v := &engine.Verification{Draft: d, Position: len(history) - 1, Sampler: s}
	v.Logits = func(row int) []float32 { return m.logits(join(history, before(&d, row))) }
	for row := range len(d.Tokens) + 1 {
		top, l := 0, v.Logits(row)
		for i := range l {
			if l[i] > l[top] {
				top = i
			}
		}
		v.Argmax = append(v.Argmax, int32(top))
	}
	return v
}

// before returns the drafts up to a row.
func before(d *engine.Draft, row int) []int32 {
	if row == 0 {
		return nil
	}
	return append(before(d, d.Parent(row-1)+1), d.Tokens[row-1])
}

// out returns the tokens of a verdict.
func out(d engine.Draft, v engine.Verdict) []int32 {
	if v.Path == nil {
		return append(append([]int32(nil), d.Tokens[:v.Accepted]...), v.Next)
	}
	var tokens []int32
	for _, i := range v.Path {
		tokens = append(tokens, d.Tokens[i])
	}
	return append(tokens, v.Next)
}
