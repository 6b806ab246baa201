package rulestest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"exacta.dev/exacta/engine/sample"
)

// texts is the number of texts that a distribution is judged by, of counted tokens.
const (
	texts   = 12_000
	counted = 3
)

// text is an output; behind its end it has -1.
type text [counted]int32

// distributed holds the texts of many seeds, decoded behind drafts of a kind, to
// their probabilities.
func (c *checker) distributed(d drafting) (err error) {
	const vocab = 3
	target := newToy(vocab, 5, nil)
	drafter := newToy(vocab, 6, target)
	if c.grammar, err = target.compile(c.params); err != nil {
		return err
	}
	want, got, ws := map[text]float64{}, map[text]int{}, sample.NewWorkspace()
	if err := c.expect(target, want, nil, 1); err != nil {
		return err
	}
	for seed := range uint64(texts) {
		p := c.params
		p.Seed = seed
		s := &scene{
			target: target, drafter: drafter, prompt: prompt, history: slices.Clone(prompt),
			sampler: target.sampler(p, prompt, c.grammar), rand: rand.New(rand.NewPCG(seed, 3)),
		}
		s.sampler.Use(ws)
		said, err := c.text(s, d)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		got[said]++
	}
	return judge(want, got)
}

// text decodes one text.
func (c *checker) text(s *scene, d drafting) (out text, err error) {
	out, n := text{-1, -1, -1}, 0
	for {
		draft := d.make(s)
		v, err := decide(c.rule, s.target.verification(c.rule, s.sampler, s.history, draft))
		if err != nil {
			return out, err
		}
		_, said, err := walk(&draft, &v)
		if err != nil {
			return out, err
		}
		for _, id := range said {
			out[n] = id
			if n++; n == counted || c.ends(id, s.target.vocab) {
				return out, nil
			}
		}
		s.history = append(s.history, said...)
		s.sampler.Push(said...)
	}
}

// expect adds the probability of every text that goes on after some tokens.
func (c *checker) expect(m *toy, to map[text]float64, after []int32, weight float64) error {
	if n := len(after); n == counted || n > 0 && c.ends(after[n-1], m.vocab) {
		t := text{-1, -1, -1}
		copy(t[:], after)
		to[t] += weight
		return nil
	}
	p, err := m.sampler(c.params, prompt, c.grammar).Process(m.logits(join(prompt, after)), after)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, x := range p {
		sum += float64(x)
	}
	for id, x := range slices.Clone(p) {
		if x > 0 {
			if err := c.expect(m, to, join(after, []int32{int32(id)}), weight*float64(x)/sum); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge compares counts with probabilities. Texts that are expected fewer than 8
// times are one cell.
func judge(want map[text]float64, got map[text]int) error {
	for t, n := range got {
		if want[t] == 0 {
			return fmt.Errorf("text %v came up %d times; it has probability 0", t, n)
		}
	}
	stat, cells, rare, rarely := 0.0, 0, 0.0, 0.0
	cell := func(x, n float64) {
		stat += (n - x) * (n - x) / x
		cells++
	}
	for t, p := range want {
		if x := p * texts; x >= 8 {
			cell(x, float64(got[t]))
		} else {
			rare, rarely = rare+x, rarely+float64(got[t])
		}
	}
	if rare >= 1 {
		cell(rare, rarely)
	}
	if bound := quantile(max(1, cells-1)); stat > bound {
		return fmt.Errorf("%d texts are not distributed as plain sampling: chi-square is %.1f with %d degrees of freedom, at most %.1f by chance (p 1e-6)", texts, stat, cells-1, bound)
	}
	return nil
}
