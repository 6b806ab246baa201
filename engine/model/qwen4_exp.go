package model

import (
	"math"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// Qwen4-Exp (transformers' Qwen4ExpForCausalLM; Qwen3.8-Flash-Next): Qwen3_5MoE with
// residual streams, whose sites stand in the place of the norms, attention to blocks of
// keys that an index chooses, a sigmoid behind the Gated DeltaNet, and n-gram
// embeddings before some layers. The last site makes the hidden state of the head.
// The MTP module goes on with the streams; it chooses its keys anew for each draft.
var qwen4ExpTraits = traits{
	centered: true, qkNorm: true, bare: true, shared: "shared_expert", mtp: qwen4MTP,
	sites: func(l *loader, prefix string) (site, site) {
		return l.loadGatedResidual(prefix+"attn_hyper_connection.", true), l.loadGatedResidual(prefix+"mlp_hyper_connection.", true)
	},
	mixer: func(l *loader, prefix string) site {
		return l.loadGatedResidual(prefix+"hyper_connection_mixer.", false)
	},
	memory: (*loader).loadPLE,
}

// qwen4MTP are the names of the module's tensors.
func qwen4MTP(checkpoint.Config) mtpNames {
	return mtpNames{
		embedNorm: "mtp.pre_fc_norm_embedding.weight", hiddenNorm: "mtp.pre_fc_norm_hidden.weight",
		fc: "mtp.fc_hidden.weight", embedFC: "mtp.fc_embedding.weight", mixer: "mtp.", layer: "mtp.layers.0.",
	}
}

// gatedResidual is a site of n streams of width H:
//
//	z = norm(x), by stream;  m = silu(z Wd / n);  in = mean over the streams of sigmoid(m Wu) * z
//	s = 2 sigmoid(z Wb / n);  x_h = x_h + s_h * y
//
// where the mixer behind the last layer has no second line.
type gatedResidual struct {
	norm     kernels.Norm
	down, up kernels.Weight // Wd and Wb stacked; Wu
	n, rank  int
	hidden   int
	injects  bool
}

// loadGatedResidual loads a site, the second line too if injects is set.
func (l *loader) loadGatedResidual(prefix string, injects bool) site {
	c := l.src.Config()
	n, h, r := c.Streams.Count, c.HiddenSize, c.Streams.Rank
	g := &gatedResidual{norm: l.streamNorm(prefix + "hc_norm.weight"), n: n, rank: r, hidden: h, injects: injects}
	parts := []part{{prefix + "input_mix_weight_down.weight", r}}
	if injects {
		parts = append(parts, part{prefix + "block_inject_weight.weight", n})
	}
	g.down = l.load(kernels.Matrix, false, n*h, parts...)
	g.up = l.matrix(prefix+"input_mix_weight_up.weight", n*h, r)
	return g
}

// streamNorm loads a norm of each stream with weights of its own.
func (l *loader) streamNorm(name string) kernels.Norm {
	c := l.src.Config()
	return kernels.Norm{W: l.vector(name, c.Streams.Count*c.HiddenSize), Eps: float32(c.RMSEps), Centered: true, Group: c.HiddenSize}
}

func (g *gatedResidual) widths() siteWidths {
	return siteWidths{count: g.n, normed: true, low: g.rank + g.n, mid: g.rank, wide: true}
}

func (g *gatedResidual) params() int64 {
	n := 2 * int64(g.n*g.hidden) * int64(g.rank)
	if g.injects {
		n += int64(g.n*g.hidden) * int64(g.n)
	}
	return n
}

func (g *gatedResidual) collapse(q kernels.Queue, dst, x kernels.Buf, s *streamScratch) {
	rows, r, part := int(x.Rows), g.rank, 1/float32(g.n)
	z, low, mid, wide := s.normed.Top(rows), s.low.Top(rows), s.mid.Top(rows).Columns(0, r), s.wide.Top(rows)
	q.Norm(z, x, g.norm)
	if g.injects {
		q.MatMul(low.Columns(0, r+g.n), g.down, z, kernels.Linear{})
		q.Activate(s.inject.Top(rows), low.Columns(r, r+g.n), kernels.Activation{Act: kernels.Sigmoid, In: part, Out: 2})
	} else {
		q.MatMul(low.Columns(0, r), g.down, z, kernels.Linear{})
	}
	q.Activate(mid, low.Columns(0, r), kernels.Activation{Act: kernels.SiLU, In: part, Out: 1})
	q.MatMul(wide, g.up, mid, kernels.Linear{Act: kernels.Sigmoid})
	q.Collapse(dst, z, wide, part)
}

func (g *gatedResidual) spread(q kernels.Queue, x, y kernels.Buf, s *streamScratch) {
	q.Spread(x, y, s.inject.Top(int(x.Rows)), kernels.Buf{})
}

// loadPLE loads the n-gram memory of a layer, the nth of the model.
func (l *loader) loadPLE(prefix string, nth int) *engram {
	c, at := l.src.Config(), prefix+"ple."
	n, h, g := c.Streams.Count, c.HiddenSize, c.Grams
	table := pleTable(c, at+"ple_embedding.ngram_embedding.", nth)
	l.stored(at+"ple_embedding.layer_multipliers", int64s(table.spec.Multipliers))
	l.stored(at+"ple_embedding.ngram_heads_vocab_sizes", int64s(table.spec.Mod))
	l.stored(at+"ple_embedding.ngram_heads_offsets", int64s(table.spec.Offset))
	m := &engram{grams: l.loadGrams(table), count: n, h: h}
	m.kv = l.load(kernels.Matrix, false, g.Width, part{at + "key_proj.weight", n * h}, part{at + "value_proj.weight", h})
	m.qNorm, m.norm = l.streamNorm(at+"norm_query.weight"), l.streamNorm(at+"norm_key.weight")
	m.blend = &kernels.BlendSpec{
		Taps:     l.load(kernels.Taps, false, g.Taps, part{at + "conv1d.weight", n * h}),
		Dilation: g.Size, Norm: l.streamNorm(at + "norm_conv.weight"),
	}
	return m
}

// pleTable describes the nth table. Its columns have the primes from the base on, those
// of the tables before left out; the multipliers follow from the seed. Tokens before a
// text, and those beyond an end-of-text token, count as such.
func pleTable(c checkpoint.Config, prefix string, nth int) gramTable {
	g := c.Grams
	columns := g.Columns()
	s := kernels.GramSpec{Size: g.Size, Heads: g.Heads, Stop: c.EOS[0], Pad: c.EOS[0], Mod: primesFrom(uint32(g.Base), nth*columns, columns)}
	rows := 0
	s.Offset, rows = stacked(s.Mod)
	half := max(1, uint64(math.MaxInt64)/uint64(c.VocabSize)/2)
	for i := range g.Size {
		const gamma, layer = 0x9e3779b97f4a7c15, 10007
		s.Multipliers = append(s.Multipliers, 2*(splitmix(uint64(g.Seed)+layer*uint64(nth)+gamma*uint64(i+1))%half)+1)
	}
	rows = (rows + g.Multiple - 1) / g.Multiple * g.Multiple
	return gramTable{spec: s, dim: g.Width / columns, parts: shards(prefix+"shard_%d.weight", rows, g.Parts)}
}

func int64s[T uint32 | uint64](x []T) []int64 {
	out := make([]int64, len(x))
	for i, v := range x {
		out[i] = int64(v)
	}
	return out
}

// blockIndex chooses the keys of an attention layer by blocks (Qwen sparse attention,
// kernels.BlockSpec), from the input that the layer's queries are made of.
type blockIndex struct {
	spec kernels.BlockSpec
	w    kernels.Weight // queries and key stacked
}

// loadBlockIndex loads an index. What scales all scores alike is left out.
func (l *loader) loadBlockIndex(prefix string, t traits, rope kernels.Weight) *blockIndex {
	c := l.src.Config()
	x := c.Index
	return &blockIndex{
		spec: kernels.BlockSpec{
			Heads: x.Heads, Dim: x.Dim, Rope: rope, Rotary: c.RotaryDim(), Ratio: x.Ratio, TopK: x.TopK / x.Ratio,
			QNorm: l.norm(prefix+"q_layernorm.weight", x.Dim, t), KNorm: l.norm(prefix+"k_layernorm.weight", x.Dim, t),
		},
		w: l.matrix(prefix+"index_qk_proj.weight", (x.Heads+1)*x.Dim, c.HiddenSize),
	}
}

func (x *blockIndex) params(hidden int) int64 {
	return int64(x.spec.Heads+1) * int64(x.spec.Dim) * int64(hidden)
}

// choiceScratch are the activations of block indexes.
type choiceScratch struct {
	proj, mask kernels.Buf
	spec       kernels.AttnSpec // of the layer that is recorded
}

func (s *choiceScratch) reserve(b *buffers, rows, positions int, blocks []*block) {
	proj := 0
	for _, bl := range blocks {
		if x := bl.choice; x != nil {
			proj = max(proj, (x.spec.Heads+1)*x.spec.Dim)
		}
	}
	if proj > 0 {
		s.proj, s.mask = b.alloc(kernels.BF16, rows, proj), b.alloc(kernels.I32, rows, kernels.MaskWords(positions))
	}
}

// forward records the choice for the rows of b, whose input is x, and returns the
// attention to what it chose.
func (x *blockIndex) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, in kernels.Buf, a *kernels.AttnSpec, s *choiceScratch) *kernels.AttnSpec {
	proj, mask := s.proj.Top(b.Rows).Columns(0, (x.spec.Heads+1)*x.spec.Dim), s.mask.Top(b.Rows)
	q.MatMul(proj, x.w, in, kernels.Linear{})
	q.SelectBlocks(mask, proj, c, b, &x.spec)
	s.spec = *a
	s.spec.Keys = mask
	return &s.spec
}
