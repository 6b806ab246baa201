package model

import (
	"fmt"
	"math"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// randomHead is a head of made-up weights for a shape: it measures what drafting
// costs, and serves tests.
type randomHead struct {
	Random
	c checkpoint.HeadConfig
}

var _ HeadSource = randomHead{}

// OpenHead makes a head of random weights, of the kind that is named, for the
// shape: as wide as the target, with its attention heads, over half of its
// vocabulary.
func (r Random) OpenHead(name string) (HeadSource, error) {
	t := r.Shape
	c := checkpoint.HeadConfig{
		Kind: checkpoint.HeadKind(name), DraftVocab: max(1, t.VocabSize/2), TargetHidden: t.HiddenSize,
		Taps: checkpoint.DefaultTaps(t.NumLayers), Heads: 5, HeadLayers: 1,
	}
	family, layers := checkpoint.Llama, 1
	switch c.Kind {
	case checkpoint.HeadDFlash, checkpoint.HeadDSpark:
		family, layers = checkpoint.Qwen3, 2
		c.DraftVocab, c.Block, c.Mask = t.VocabSize, 9, int32(t.VocabSize-1)
		c.Anchor, c.MarkovRank, c.Confidence, c.ConfidenceMarkov = c.Kind == checkpoint.HeadDSpark, 32, true, true
	case checkpoint.HeadEagle:
		c.DraftVocab = t.VocabSize
	}
	if c.Kind == checkpoint.HeadMTP {
		c.Layer, c.DraftVocab = t, t.VocabSize
		h := randomHead{Random: r, c: c}
		h.ShapeName, h.Seed = r.ShapeName+"/"+name, r.Seed+1
		return h, nil
	}
	c.Layer = dense(family, string(family), t.HiddenSize, t.FeedSize(), layers, t.NumHeads, t.NumKVHeads, t.HeadDim, t.VocabSize, 1e4, t.RMSEps)
	h := randomHead{Random: r, c: c}
	h.Shape, h.ShapeName, h.Seed = c.Layer, r.ShapeName+"/"+name, r.Seed+1
	return h, nil
}

// Head implements HeadSource.
func (h randomHead) Head() checkpoint.HeadConfig { return h.c }

// Has implements Source: such a head shares the target's embedding, and one that
// drafts blocks its LM head.
func (h randomHead) Has(name string) bool {
	switch name {
	case "embed_tokens.weight":
		return false
	case "lm_head.weight":
		return h.c.Block == 0
	case "d2t":
		return h.c.DraftVocab != h.c.Layer.VocabSize
	}
	return true
}

// Ints implements HeadSource: the kept tokens are spread over the vocabulary.
func (h randomHead) Ints(name string, n int) ([]int64, error) {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i) * int64(h.c.Layer.VocabSize) / int64(n)
		if name == "d2t" {
			out[i] -= int64(i)
		}
	}
	return out, nil
}

// Close implements HeadSource.
func (h randomHead) Close() error { return nil }

// randomInt4Head is a randomHead whose matrices, an LM head of its own among them,
// have 4 bits: symmetric, in groups of int4Group columns.
type randomInt4Head struct{ randomHead }

var _ HeadSource = randomInt4Head{}

const int4Group = 32

// int4Head makes a head of random weights of 4 bits.
func (r Random) int4Head(kind checkpoint.HeadKind) (HeadSource, error) {
	h, err := r.OpenHead(string(kind))
	if err != nil {
		return nil, err
	}
	return randomInt4Head{h.(randomHead)}, nil
}

// Has implements Source.
func (h randomInt4Head) Has(name string) bool {
	return name == "lm_head.weight" || h.randomHead.Has(name)
}

// Matrix implements Source: what has more than one row, and is not gathered from, has 4
// bits.
func (h randomInt4Head) Matrix(name string, rows, cols int) (kernels.Source, error) {
	s, err := h.randomHead.Matrix(name, rows, cols)
	if err != nil || rows == 1 || Gathered(name) {
		return s, err
	}
	if cols%int4Group != 0 {
		return s, fmt.Errorf("%s: tensor %s has %d columns, which groups of %d don't divide; there are no such heads of 4 bits for this shape", h.Name(), name, cols, int4Group)
	}
	// Uniform over -8..7, with the standard deviation that Random gives matrices.
	scale := float32(1 / (4.61 * math.Sqrt(float64(cols))))
	key := splitmix(h.Seed ^ hashName(name))
	s.DType, s.Data = kernels.DTypeInt4, generator{key: key, size: int64(rows) * int64(cols) / 2, raw: true}
	s.Int4 = &kernels.Int4{Group: int4Group, Scales: generator{key: splitmix(key), mean: scale, spread: scale / 4, size: int64(rows) * int64(cols/int4Group) * 2}}
	return s, nil
}
