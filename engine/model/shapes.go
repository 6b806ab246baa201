package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"exacta.dev/exacta/engine/checkpoint"
)

// Shapes are configurations known by name, for runs with random weights.
// Sizes are those of the published models of that name; wide-4096 has a few layers of
// the width of large models, to measure what drafting costs there.
var shapes = map[string]func() checkpoint.Config{
	"qwen3-0.6b": func() checkpoint.Config {
		return dense(checkpoint.Qwen3, "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 1e6, 1e-6)
	},
	"qwen3-1.7b": func() checkpoint.Config {
		return dense(checkpoint.Qwen3, "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, 1e6, 1e-6)
	},
	"qwen3-8b": func() checkpoint.Config {
		c := dense(checkpoint.Qwen3, "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 1e6, 1e-6)
		c.TieEmbeddings = false
		return c
	},
	"smollm2-135m": func() checkpoint.Config {
		return dense(checkpoint.Llama, "llama", 576, 1536, 30, 9, 3, 64, 49152, 1e5, 1e-5)
	},
	"smollm2-360m": func() checkpoint.Config {
		return dense(checkpoint.Llama, "llama", 960, 2560, 32, 15, 5, 64, 49152, 1e5, 1e-5)
	},
	"qwen3.5-0.8b": func() checkpoint.Config {
		return hybrid(1024, 3584, 24, 8, 2, 256, checkpoint.GDN{NumKHeads: 16, NumVHeads: 16, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 248320, 1e7)
	},
	"wide-4096": func() checkpoint.Config {
		return hybrid(4096, 12288, 4, 32, 8, 128, checkpoint.GDN{NumKHeads: 16, NumVHeads: 32, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 32768, 1e6)
	},
	"qwen3-30b-a3b": func() checkpoint.Config {
		c := dense(checkpoint.Qwen3MoE, "qwen3_moe", 2048, 6144, 48, 32, 4, 128, 151936, 1e6, 1e-6)
		return sparse(c, checkpoint.MoE{Experts: 128, PerToken: 8, Size: 768, Normalize: true})
	},
	"qwen3.6-35b-a3b": func() checkpoint.Config {
		c := hybrid(2048, 0, 40, 16, 2, 256, checkpoint.GDN{NumKHeads: 16, NumVHeads: 32, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 248320, 1e7)
		c.Family, c.ModelType = checkpoint.Qwen3_5MoE, "qwen3_5_moe_text"
		return sparse(c, checkpoint.MoE{Experts: 256, PerToken: 8, Size: 512, SharedSize: 512, SharedGate: true, Normalize: true})
	},
	"qwen3.8-27b": func() checkpoint.Config {
		c := hybrid(5120, 17408, 64, 24, 4, 256, checkpoint.GDN{NumKHeads: 16, NumVHeads: 48, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 248320, 1e7)
		c.TieEmbeddings = false
		return c
	},
	"qwen3.8-flash-next": func() checkpoint.Config {
		c := hybrid(2560, 0, 48, 24, 2, 256, checkpoint.GDN{NumKHeads: 16, NumVHeads: 48, KDim: 128, VDim: 128, ConvKernel: 4, OutputGate: checkpoint.Sigmoid}, 248320, 1e7)
		c.Family, c.ModelType, c.EOS = checkpoint.Qwen4Exp, "qwen4_exp_text", []int32{248044}
		c.Streams = checkpoint.Streams{Count: 4, Rank: 320}
		c.Index = checkpoint.Index{Heads: 4, Dim: 128, TopK: 2048, Ratio: 4, Own: slices.Repeat([]bool{true}, c.NumLayers)}
		c.Grams = checkpoint.Grams{Layers: []int{1}, Size: 3, Heads: 8, Width: 2560, Base: 20_000_000, Multiple: 128, Parts: 128, Taps: 4, Seed: 1234}
		return sparse(c, checkpoint.MoE{Experts: 512, PerToken: 10, Size: 640, SharedSize: 640, SharedGate: true, Normalize: true})
	},
	"embedded": func() checkpoint.Config {
		return hybrid(192, 448, 20, 4, 2, 64, checkpoint.GDN{NumKHeads: 2, NumVHeads: 4, KDim: 64, VDim: 64, ConvKernel: 4, OutputGate: checkpoint.SiLU}, 4096, 1e5)
	},
}

// ShapeNames lists the shapes known by name, sorted.
func ShapeNames() []string { return slices.Sorted(maps.Keys(shapes)) }

// Shape returns the configuration of a known shape.
func Shape(name string) (checkpoint.Config, error) {
	f, ok := shapes[name]
	if !ok {
		return checkpoint.Config{}, fmt.Errorf("unknown shape %q; known: %s", name, strings.Join(ShapeNames(), ", "))
	}
	return f(), nil
}

func dense(f checkpoint.Family, modelType string, hidden, inter, layers, heads, kv, dim, vocab int, theta, eps float64) checkpoint.Config {
	return checkpoint.Config{
		ModelType: modelType, Family: f,
		HiddenSize: hidden, IntermediateSize: inter, NumLayers: layers, NumHeads: heads, NumKVHeads: kv, HeadDim: dim,
		VocabSize: vocab, MaxPositions: 32768, RMSEps: eps, TieEmbeddings: true,
		Rope:       checkpoint.Rope{Type: checkpoint.RopeDefault, Theta: theta, PartialFactor: 1},
		LayerTypes: slices.Repeat([]checkpoint.LayerKind{checkpoint.FullAttention}, layers),
		BOS:        -1,
	}
}

// sparse makes all layers mixtures with a softmax router.
func sparse(c checkpoint.Config, m checkpoint.MoE) checkpoint.Config {
	m.Score, m.Groups, m.KeptGroups, m.Scale = checkpoint.Softmax, 1, 1, 1
	c.MoE, c.Sparse, c.TieEmbeddings = m, slices.Repeat([]bool{true}, c.NumLayers), false
	return c
}

func hybrid(hidden, inter, layers, heads, kv, dim int, g checkpoint.GDN, vocab int, theta float64) checkpoint.Config {
	c := dense(checkpoint.Qwen3_5, "qwen3_5_text", hidden, inter, layers, heads, kv, dim, vocab, theta, 1e-6)
	c.AttnOutputGate, c.GDN, c.MTPLayers, c.Rope.PartialFactor = true, g, 1, 0.25
	for i := range c.LayerTypes {
		if (i+1)%4 != 0 {
			c.LayerTypes[i] = checkpoint.LinearAttention
		}
	}
	return c
}
