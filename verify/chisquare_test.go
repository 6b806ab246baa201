package verify

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// end is a run of many requests through a real drafter's noise and a real rule's
// noise: a small model, several consecutive steps, one request for each seed.
type end struct {
	vocab, tokens int
	params        sample.Params
	target        *toy
	drafter       *toy
	prompt        []int32
	rule          func() noisy
	shape         []int32 // of trees
}

func newEnd(params sample.Params) *end {
	target := &toy{vocab: 3, salt: 77, scale: 1}
	return &end{
		vocab: 3, tokens: 5, params: params, target: target,
		drafter: &toy{vocab: 3, salt: 78, scale: 1, like: target, noise: 0.7},
		prompt:  []int32{2, 0, 1}, rule: func() noisy { return newRejection() },
	}
}

// rows caches the logits of both models for every history: they are functions of
// it.
type rows map[string][]float32

func (r rows) logits(m *toy, which byte, history []int32) []float32 {
	key := make([]byte, 0, 24)
	key = append(key, which)
	for _, t := range history {
		key = append(key, byte(t))
	}
	if l, ok := r[string(key)]; ok {
		return l
	}
	l := m.logits(history)
	r[string(key)] = l
	return l
}

// request generates e.tokens tokens with one seed and a draft length that
// changes from step to step, as under a budget. Returns the index of the outcome.
func (e *end) request(r rows, rule noisy, ws *sample.Workspace, seed uint64, probs [][]float32) int {
	p := e.params
	p.Seed = seed
	s := sample.New(p, e.prompt)
	s.Use(ws)
	history := append([]int32(nil), e.prompt...)
	for step := 0; len(history) < len(e.prompt)+e.tokens; step++ {
		var d engine.Draft
		length := len(history) - 1
		k := 2 - step%2*int(seed%2)
		if step == 0 {
			k = 0 // the end of the prompt
		}
		for i := range k {
			q, err := s.ProcessTo(probs[i], r.logits(e.drafter, 1, append(history, d.Tokens...)), d.Tokens)
			if err != nil {
				panic(err)
			}
			d.Tokens = append(d.Tokens, p.Draw(sample.Draft, q, length, i))
			d.Probs = append(d.Probs, q)
		}
		v := &engine.Verification{Draft: d, Position: length, Sampler: s, Logits: func(row int) []float32 {
			return r.logits(e.target, 0, append(history[:len(history):len(history)], d.Tokens[:row]...))
		}}
		verdict, err := rule.Verify(v)
		if err != nil {
			panic(err)
		}
		emitted := out(d, verdict)
		history = append(history, emitted...)
		s.Push(emitted...)
	}
	index := 0
	for _, t := range history[len(e.prompt):][:e.tokens] {
		index = index*e.vocab + int(t)
	}
	return index
}

// expected returns the probabilities of the outcomes under plain sampling.
func (e *end) expected() []float64 {
	list := []float64{1}
	after := [][]int32{nil}
	for range e.tokens {
		var next []float64
		var tokens [][]int32
		for i, w := range list {
			s := sample.New(e.params, e.prompt)
			s.Push(after[i]...)
			probs, err := s.Process(e.target.logits(join(e.prompt, after[i])), nil)
			if err != nil {
				panic(err)
			}
			sum := mass(probs)
			for t, p := range probs {
				next = append(next, w*float64(p)/sum)
				tokens = append(tokens, join(after[i], []int32{int32(t)}))
			}
		}
		list, after = next, tokens
	}
	return list
}

// chi runs n requests and returns the chi-square statistic against plain
// sampling with its degrees of freedom. Outcomes that are expected fewer than 8
// times are one cell.
func (e *end) chi(n int) (stat float64, freedom int) {
	workers := runtime.GOMAXPROCS(0)
	want := e.expected()
	counts := make([][]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		counts[w] = make([]int, len(want))
		wg.Go(func() {
			r, rule, ws := rows{}, e.rule(), sample.NewWorkspace()
			probs := [][]float32{make([]float32, e.vocab), make([]float32, e.vocab)}
			for seed := w; seed < n; seed += workers {
				counts[w][e.request(r, rule, ws, uint64(seed), probs)]++
			}
		})
	}
	wg.Wait()
	rareWant, rareGot := 0.0, 0.0
	cell := func(want, got float64) {
		stat += (got - want) * (got - want) / want
		freedom++
	}
	for i, p := range want {
		got := 0
		for _, c := range counts {
			got += c[i]
		}
		if x := p * float64(n); x >= 8 {
			cell(x, float64(got))
		} else {
			rareWant += x
			rareGot += float64(got)
		}
	}
	if rareWant > 0 {
		cell(rareWant, rareGot)
	}
	return stat, freedom - 1
}

// quantile is the 1 - 1e-4 quantile of chi-square (Wilson and Hilferty 1931).
func quantile(freedom int) float64 {
	k := float64(freedom)
	h := 2 / (9 * k)
	return k * math.Pow(1-h+3.719*math.Sqrt(h), 3)
}

// The output over several consecutive steps, with the real draft, acceptance and
// recovery streams, is distributed as plain sampling.
func TestRejectionChiSquare(t *testing.T) {
	for _, c := range []struct {
		name     string
		params   sample.Params
		requests int
	}{
		{"temperature", sample.Params{Temperature: 1}, 1_000_000},
		{"penalties", sample.Params{Temperature: 0.8, PresencePenalty: 0.6, RepetitionPenalty: 1.2}, 200_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			stat, freedom := newEnd(c.params).chi(c.requests)
			t.Logf("chi-square %.1f at %d degrees of freedom, bound %.1f", stat, freedom, quantile(freedom))
			require.Less(t, stat, quantile(freedom))
		})
	}
}

// So it is under block verification; sharing streams shows there too.
func TestBlockChiSquare(t *testing.T) {
	e := newEnd(sample.Params{Temperature: 1})
	e.rule = func() noisy { return newBlock() }
	stat, freedom := e.chi(1_000_000)
	t.Logf("chi-square %.1f at %d degrees of freedom, bound %.1f", stat, freedom, quantile(freedom))
	require.Less(t, stat, quantile(freedom))
	e.rule = func() noisy {
		b := newBlock()
		b.noise = func(s *sample.Sampler, _ sample.Purpose, length, row int) float64 {
			return streamed(s, sample.Verify, length, row)
		}
		return b
	}
	stat, freedom = e.chi(100_000)
	require.Greater(t, stat, quantile(freedom), "recovery shares acceptance's noise")
}

// The same test, on a tenth of the requests, sees a wrong residual and every pair
// of streams that is one.
func TestChiSquareCatches(t *testing.T) {
	shared := func(as map[sample.Purpose]sample.Purpose) func() noisy {
		return func() noisy {
			r := newRejection()
			r.noise = func(s *sample.Sampler, p sample.Purpose, length, row int) float64 {
				if other, ok := as[p]; ok {
					p = other
				}
				return streamed(s, p, length, row)
			}
			return r
		}
	}
	for name, breaks := range map[string]func(e *end){
		"the residual is p": func(e *end) {
			e.rule = func() noisy {
				r := newRejection()
				r.residual = func([]float64, []float32, int32) {}
				return r
			}
		},
		"acceptance shares the draft's noise": func(e *end) {
			e.rule = shared(map[sample.Purpose]sample.Purpose{sample.Verify: sample.Draft})
		},
		"recovery shares the draft's noise": func(e *end) {
			e.rule = shared(map[sample.Purpose]sample.Purpose{sample.Recovery: sample.Draft})
		},
		"recovery shares acceptance's noise": func(e *end) {
			e.rule = shared(map[sample.Purpose]sample.Purpose{sample.Recovery: sample.Verify})
		},
		"one noise for all rows": func(e *end) {
			e.rule = func() noisy {
				r := newRejection()
				r.noise = func(s *sample.Sampler, p sample.Purpose, length, _ int) float64 { return streamed(s, p, length, 0) }
				return r
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnd(sample.Params{Temperature: 1})
			breaks(e)
			stat, freedom := e.chi(100_000)
			t.Logf("chi-square %.1f at %d degrees of freedom, bound %.1f", stat, freedom, quantile(freedom))
			require.Greater(t, stat, quantile(freedom), fmt.Sprint("not noticed: ", name))
		})
	}
}
