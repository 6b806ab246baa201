package model

import "exacta.dev/exacta/engine/checkpoint"

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
	if c.Kind == checkpoint.HeadDFlash {
		family, layers = checkpoint.Qwen3, 2
		c.DraftVocab, c.Block, c.Mask = t.VocabSize, 9, int32(t.VocabSize-1)
	}
	if c.Kind == checkpoint.HeadMTP {
		c.Layer, c.DraftVocab = t, t.VocabSize
		h := randomHead{Random: r, c: c}
		h.ShapeName, h.Seed = r.ShapeName+"/"+name, r.Seed+1
		return h, nil
	}
	c.Layer = dense(family, string(family), t.HiddenSize, t.IntermediateSize, layers, t.NumHeads, t.NumKVHeads, t.HeadDim, t.VocabSize, 1e4, t.RMSEps)
	h := randomHead{Random: r, c: c}
	h.Shape, h.ShapeName, h.Seed = c.Layer, r.ShapeName+"/"+name, r.Seed+1
	return h, nil
}

// Head implements HeadSource.
func (h randomHead) Head() checkpoint.HeadConfig { return h.c }

// Has implements Source: such a head shares the target's embedding.
func (h randomHead) Has(name string) bool { return name != "embed_tokens.weight" }

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
