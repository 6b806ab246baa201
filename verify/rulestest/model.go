package rulestest

import (
	"math"
	"math/rand/v2"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/grammar"
	"exacta.dev/exacta/engine/sample"
)

// toy is a model over a small vocabulary, whose last token ends the text: logits are
// a function of the tokens before the row.
type toy struct {
	vocab int
	salt  uint64
	like  *toy // a drafter: resembles this model
	rows  map[string][]float32
}

func newToy(vocab int, salt uint64, like *toy) *toy {
	return &toy{vocab: vocab, salt: salt, like: like, rows: map[string][]float32{}}
}

// logits are not to be changed.
func (m *toy) logits(history []int32) []float32 {
	key := make([]byte, len(history))
	h := m.salt
	for i, t := range history {
		key[i] = byte(t)
		h = (h ^ uint64(t+1)) * 0x9e3779b97f4a7c15
		h ^= h >> 31
	}
	if l, ok := m.rows[string(key)]; ok {
		return l
	}
	r, l := rand.New(rand.NewPCG(h, 1)), make([]float32, m.vocab)
	for i := range l {
		l[i] = float32(1.3 * r.NormFloat64())
		if m.like != nil {
			l[i] = l[i]/2 + m.like.logits(history)[i]
		}
	}
	if len(m.rows) < 1<<16 {
		m.rows[string(key)] = l
	}
	return l
}

// sampler is the sampler of a request, with its grammar over the tokens "a", "b", ...
func (m *toy) sampler(p sample.Params, prompt []int32, g *grammar.Grammar) *sample.Sampler {
	s := sample.New(p, prompt)
	if g != nil {
		s.Constrain(g)
	}
	return s
}

// compile compiles the grammar of parameters, nil where they have none.
func (m *toy) compile(p sample.Params) (*grammar.Grammar, error) {
	if p.Grammar == "" {
		return nil, nil
	}
	tokens := make([][]byte, m.vocab)
	for i := range tokens {
		tokens[i] = []byte{byte('a' + i)}
	}
	return grammar.NewVocabulary(tokens, []int32{int32(m.vocab - 1)}).Compile(p.Grammar)
}

// verification is what an engine shows a rule when history, whose last token is
// pending, is followed by a draft.
func (m *toy) verification(rule engine.Verifier, s *sample.Sampler, history []int32, d engine.Draft) *engine.Verification {
	v := &engine.Verification{Draft: d, Position: len(history) - 1, Sampler: s}
	rows := make([][]float32, len(d.Tokens)+1)
	for row := range rows {
		rows[row] = append([]float32(nil), m.logits(join(history, before(&d, row)))...)
		top := 0
		for i, x := range rows[row] {
			if x > rows[row][top] {
				top = i
			}
		}
		v.Argmax = append(v.Argmax, int32(top))
	}
	if rule.NeedsLogits(s.Params()) {
		v.Logits = func(row int) []float32 { return rows[row] }
	}
	return v
}

// plain is plain decoding's next token.
func (m *toy) plain(s *sample.Sampler, history []int32) (int32, error) {
	return s.CoupledSample(m.logits(history), nil, len(history))
}

// before returns the drafts up to a row.
func before(d *engine.Draft, row int) []int32 {
	if row == 0 {
		return nil
	}
	return append(before(d, d.Parent(row-1)+1), d.Tokens[row-1])
}

func join(a, b []int32) []int32 { return append(append(make([]int32, 0, len(a)+len(b)), a...), b...) }

// quantile is the 1 - 1e-6 quantile of chi-square (Wilson and Hilferty 1931).
func quantile(freedom int) float64 {
	k := float64(freedom)
	h := 2 / (9 * k)
	return k * math.Pow(1-h+4.753*math.Sqrt(h), 3)
}
