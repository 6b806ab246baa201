package verify

import (
	"sync"
	"testing"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/sample"

	"github.com/stretchr/testify/require"
)

// tree draws a draft of a shape with the Draft stream, keyed by node.
func (e *end) tree(r rows, s *sample.Sampler, history []int32, probs [][]float32, how drawing) engine.Draft {
	d := engine.Draft{Parents: e.shape}
	for i := range e.shape {
		after := before(&d, int(e.shape[i])+1)
		q, err := s.ProcessTo(probs[i], r.logits(e.drafter, 1, join(history, after)), after)
		if err != nil {
			panic(err)
		}
		drawn, told := sibling(&d, i, q, how)
		d.Tokens = append(d.Tokens, s.Params().Draw(sample.Draft, drawn, len(history)-1, i))
		d.Probs = append(d.Probs, told)
	}
	return d
}

// treeRequest is request with a tree in every step but the first.
func (e *end) treeRequest(r rows, rule noisy, ws *sample.Workspace, seed uint64, probs [][]float32, how drawing) int {
	p := e.params
	p.Seed = seed
	s := sample.New(p, e.prompt)
	s.Use(ws)
	history := append([]int32(nil), e.prompt...)
	for step := 0; len(history) < len(e.prompt)+e.tokens; step++ {
		var d engine.Draft
		if step > 0 {
			d = e.tree(r, s, history, probs, how)
		}
		v := &engine.Verification{Draft: d, Position: len(history) - 1, Sampler: s, Argmax: make([]int32, len(d.Tokens)+1)}
		v.Logits = func(row int) []float32 { return r.logits(e.target, 0, join(history, before(&d, row))) }
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

// treeChi is chi for trees.
func (e *end) treeChi(n int, how drawing) (stat float64, freedom int) {
	const workers = 2
	var counts [workers][]int
	var wg sync.WaitGroup
	want := e.expected()
	for w := range workers {
		counts[w] = make([]int, len(want))
		wg.Go(func() {
			r, rule, ws := rows{}, e.rule(), sample.NewWorkspace()
			probs := make([][]float32, len(e.shape))
			for i := range probs {
				probs[i] = make([]float32, e.vocab)
			}
			for seed := w; seed < n; seed += workers {
				counts[w][e.treeRequest(r, rule, ws, uint64(seed), probs, how)]++
			}
		})
	}
	wg.Wait()
	for i, p := range want {
		x, got := p*float64(n), float64(counts[0][i]+counts[1][i])
		stat += (got - x) * (got - x) / x
	}
	return stat, len(want) - 1
}

// The output over consecutive steps of trees, with the real draft, acceptance and
// recovery streams, is distributed as plain sampling; wrong rules are seen.
func TestTreeChiSquare(t *testing.T) {
	tree := func(shape []int32) *end {
		e := newEnd(uniform)
		e.shape, e.tokens = shape, 4
		return e
	}
	for _, c := range []struct {
		name  string
		shape []int32
		how   drawing
		n     int
	}{
		{"without replacement", bushy, withoutReplacement, 1_000_000},
		{"with replacement", comb, withReplacement, 1_000_000},
	} {
		stat, freedom := tree(c.shape).treeChi(c.n, c.how)
		t.Logf("%s: chi-square %.1f at %d degrees of freedom, bound %.1f", c.name, stat, freedom, quantile(freedom))
		require.Less(t, stat, quantile(freedom), c.name)
	}
	shared := tree(bushy)
	shared.rule = func() noisy {
		r := newRejection()
		r.noise = func(s *sample.Sampler, p sample.Purpose, length, _ int) float64 { return streamed(s, p, length, 0) }
		return r
	}
	wrong := tree(bushy)
	wrong.rule = func() noisy {
		r := newRejection()
		r.residual = func([]float64, []float32, int32) {}
		return r
	}
	for name, e := range map[string]*end{"one noise for all nodes": shared, "the residual is p": wrong, "hidden drawing": tree(bushy)} {
		how := withoutReplacement
		if name == "hidden drawing" {
			how = pretended
		}
		stat, freedom := e.treeChi(100_000, how)
		require.Greater(t, stat, quantile(freedom), "not noticed: %s", name)
	}
}
