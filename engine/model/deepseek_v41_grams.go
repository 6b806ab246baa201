package model

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// loadEngram loads the n-gram memory of a layer of DeepSeek-V4.1, the nth of the model:
// that of Qwen4Exp without a convolution. Hashes are of the numbers that tokens have by
// what they say; the primes go on from table to table, and the multipliers are drawn by
// the number of the layer.
func (l *loader) loadEngram(prefix string, nth int) *engram {
	c, at := l.src.Config(), prefix+"engram."
	n, h, g := c.Streams.Count, c.HiddenSize, c.Grams
	columns := g.Columns()
	s := kernels.GramSpec{Size: g.Size, Heads: g.Heads, Stop: -1, Mod: primesFrom(uint32(g.Base), nth*columns, columns)}
	rows := 0
	s.Offset, rows = stacked(s.Mod)
	if rows != g.Rows[nth] && l.err == nil {
		l.err = fmt.Errorf("%s: config.json: engram_num_embeddings[%d] is %d; the primes from %d on give a table of %d", l.src.Name(), nth, g.Rows[nth], g.Base, rows)
	}
	s.Multipliers = engramMultipliers(g.Layers[nth], g.Size, g.Alike)
	s.Map, s.Pad = l.alike(g.Alike, g.Pad)
	m := &engram{
		grams: l.loadGrams(gramTable{spec: s, dim: g.Width / columns, parts: []part{{at + "embed.weight", rows}}}),
		kv:    l.matrix(at+"wkv.weight", (n+1)*h, g.Width), count: n, h: h,
	}
	for name, norm := range map[string]*kernels.Norm{"q_weight": &m.qNorm, "k_weight": &m.norm} {
		*norm = kernels.Norm{W: l.flat(at+name, n, h), Eps: float32(c.RMSEps), Group: h}
	}
	return m
}

// engramMultipliers returns the multipliers of the hashes of a layer.
func engramMultipliers(layer, size, alike int) (out []uint64) {
	r := newNumpyRandom(10007 * uint64(layer))
	for range size {
		out = append(out, 2*r.below(uint64(math.MaxInt64)/uint64(alike)/2)+1)
	}
	return out
}

// alike loads the numbers of tokens, want in all, and returns that of pad too. Ids of the
// vocabulary that no token has count as pad.
func (l *loader) alike(want int, pad int32) (kernels.Buf, int32) {
	if l.err != nil {
		return kernels.Buf{}, 0
	}
	ids, n, err := l.src.Alike()
	vocab := l.src.Config().VocabSize
	switch {
	case err != nil:
		l.err = fmt.Errorf("%s: n-grams are of what tokens say: %w", l.src.Name(), err)
	case n != want:
		l.err = fmt.Errorf("%s: tokens say %d things, by tokenizer.json; engram_compressed_vocab_size is %d", l.src.Name(), n, want)
	case int(pad) >= len(ids) || len(ids) > vocab:
		l.err = fmt.Errorf("%s: tokenizer.json has %d tokens; engram_pad_token_id is %d, and vocab_size %d", l.src.Name(), len(ids), pad, vocab)
	}
	if l.err != nil {
		return kernels.Buf{}, 0
	}
	number := ids[pad]
	for len(ids) < vocab {
		ids = append(ids, number)
	}
	return l.numbers("numbers of tokens", ids, 1), number
}
