package model

import (
	"exacta.dev/exacta/kernels"
)

// indexEps is the constant in the norm of an index's keys.
const indexEps = 1e-6

// index chooses the keys of sparse attention (DeepSeek-V3.2's lightning indexer):
//
//	q_h = cq Wq_h;  k = layernorm(x Wk);  w = x Ww
//	score(s) = sum over h of w_h * relu(rope(q_h) . rope(k_s))
//
// with a rotation of the first channels. What scales all scores alike is left out, and
// so is the Hadamard rotation of q and k before they are quantised elsewhere, which
// the products don't see.
type index struct {
	spec        kernels.IndexSpec
	q, k, heads kernels.Weight
	norm        kernels.Norm
}

// loadIndex loads an index. Rotary pairs that are interleaved in the files are taken
// apart.
func (l *loader) loadIndex(prefix string, t traits, rope kernels.Weight) *index {
	c := l.src.Config()
	n, d := c.Index.Heads, c.Index.Dim
	x := &index{spec: kernels.IndexSpec{Heads: n, Dim: d, Rope: rope, Rotary: c.MLA.Rope, TopK: c.Index.TopK}}
	order := make([]int, d)
	for i := range order {
		if order[i] = i; t.indexPairs && i < c.MLA.Rope {
			order[i] = interleaved(i, c.MLA.Rope)
		}
	}
	x.q = l.ordered(kernels.Matrix, prefix+"wq_b.weight", n, c.MLA.QRank, order)
	x.k = l.ordered(kernels.Matrix, prefix+"wk.weight", 1, c.HiddenSize, order)
	x.norm = kernels.Norm{
		W: l.ordered(kernels.Vector, prefix+"k_norm.weight", 1, 1, order), Bias: l.ordered(kernels.Vector, prefix+"k_norm.bias", 1, 1, order), Eps: indexEps,
	}
	x.heads = l.matrix(prefix+"weights_proj.weight", n, c.HiddenSize)
	return x
}

// ordered loads a matrix of n groups of rows, each in another order.
func (l *loader) ordered(use kernels.Use, name string, n, cols int, order []int) kernels.Weight {
	src := l.source(name, n*len(order), cols)
	if l.err != nil {
		return kernels.Weight{}
	}
	t := kernels.Tensor{Name: name, Use: use}
	for g := range n {
		for from := 0; from < len(order); {
			to := from + 1
			for to < len(order) && order[to] == order[to-1]+1 {
				to++
			}
			at := g*len(order) + order[from]
			t.Parts = append(t.Parts, rowsOf(src, at, at+to-from))
			from = to
		}
	}
	return l.take(t, name)
}

// indexScratch are the activations of indexes. The mask stays for the layers after
// that take it. Where given is set, it is taken instead of a choice.
type indexScratch struct{ proj, key, heads, mask, given kernels.Buf }

func (s *indexScratch) reserve(b *buffers, rows, positions int, blocks []*block) {
	proj, key, heads := 0, 0, 0
	for _, bl := range blocks {
		if bl.mla != nil && bl.mla.index != nil {
			x := bl.mla.index.spec
			proj, key, heads = max(proj, (x.Heads+1)*x.Dim), max(key, x.Dim), max(heads, x.Heads)
		}
	}
	if proj > 0 {
		s.proj, s.key = b.alloc(kernels.BF16, rows, proj), b.alloc(kernels.BF16, rows, key)
		s.heads, s.mask = b.alloc(kernels.F32, rows, heads), b.alloc(kernels.I32, rows, kernels.MaskWords(positions))
	}
}

// forward records the choice for the rows of b, whose hidden states and query latents
// are x and cq before their norms.
func (x *index) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, in, cq kernels.Buf, norm, qNorm kernels.Norm, s *indexScratch) {
	n, d, heads := b.Rows, x.spec.Dim, x.spec.Heads
	proj, key, weights := s.proj.Top(n).Columns(0, (heads+1)*d), s.key.Top(n).Columns(0, d), s.heads.Top(n).Columns(0, heads)
	q.MatMul(proj.Columns(0, heads*d), x.q, cq, kernels.Linear{In: qNorm})
	q.MatMul(key, x.k, in, kernels.Linear{In: norm})
	q.Norm(proj.Columns(heads*d, (heads+1)*d), key, x.norm)
	q.MatMul(weights, x.heads, in, kernels.Linear{In: norm})
	q.Select(s.mask.Top(n), proj, weights, c, b, &x.spec)
}
