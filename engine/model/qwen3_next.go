package model

import (
	"fmt"
	"io"

	"exacta.dev/exacta/kernels"
)

// Qwen3-Next (transformers' Qwen3NextForCausalLM): the arithmetic of
// Qwen3_5MoE. Its files have one tensor an expert, and two projections of a Gated
// DeltaNet layer, in which the rows of a key head stand together:
//
//	in_proj_qkvz  by key head: q [KDim] | k [KDim] | v [r*VDim] | z [r*VDim]
//	in_proj_ba    by key head: b [r] | a [r]
//
// with r value heads to a key head.
var qwen3NextTraits = traits{centered: true, qkNorm: true, fused: true, shared: "shared_expert", mtp: qwenMTP}

// fusedDelta loads the two projections in the order q | k | v | z | b | a.
func (l *loader) fusedDelta(prefix string) kernels.Weight {
	c := l.src.Config()
	g := c.GDN
	r := g.NumVHeads / g.NumKHeads
	qkvz := []int{g.KDim, g.KDim, r * g.VDim, r * g.VDim}
	var parts []kernels.Source
	for _, x := range []struct {
		name  string
		sizes []int // rows of a key head
	}{{prefix + "in_proj_qkvz.weight", qkvz}, {prefix + "in_proj_ba.weight", []int{r, r}}} {
		parts = append(parts, l.grouped(x.name, g.NumKHeads, x.sizes)...)
	}
	if l.err != nil {
		return kernels.Weight{}
	}
	t := kernels.Tensor{Name: prefix + "in_proj", Use: kernels.Matrix, Parts: parts}
	return l.take(t, prefix+"in_proj_qkvz.weight", prefix+"in_proj_ba.weight")
}

// grouped returns the sections of a matrix whose rows stand by group, each section
// of sizes rows in every group: first the first sections of all groups.
func (l *loader) grouped(name string, groups int, sizes []int) []kernels.Source {
	total := 0
	for _, n := range sizes {
		total += n
	}
	if l.err != nil {
		return nil
	}
	src, err := l.src.Matrix(name, groups*total, l.src.Config().HiddenSize)
	if err != nil {
		l.err = err
		return nil
	}
	line := int64(src.Cols * src.DType.Size())
	var out []kernels.Source
	at := 0
	for _, n := range sizes {
		for g := range groups {
			p := src
			p.Rows, p.Name = n, fmt.Sprintf("%s[%d:%d]", name, g*total+at, g*total+at+n)
			p.Data = io.NewSectionReader(src.Data, int64(g*total+at)*line, int64(n)*line)
			out = append(out, p)
		}
		at += n
	}
	return out
}
