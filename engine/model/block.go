package model

import (
	"fmt"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// traits are what distinguishes the families inside the shared block.
type traits struct {
	centered bool   // norms multiply by 1 + w
	qkNorm   bool   // per-head norms of q and k
	fused    bool   // the GDN projections are two, their rows grouped by key head
	shared   string // name of the expert that all rows get
	// indexPairs says that the rotary pairs of an index are interleaved.
	indexPairs bool
	mtp        func(c checkpoint.Config) mtpNames
	// bare says that sub-layers have no norms before them.
	bare bool
	// sites loads what stands between residual streams and the two sub-layers of
	// a block, and mixer what makes the hidden state of the head of them; nil:
	// plain residuals.
	sites func(l *loader, prefix string) (mix, feed site)
	mixer func(l *loader, prefix string) site
	// memory loads the n-gram memory of a layer; nil: the family has none.
	memory func(l *loader, prefix string, nth int) *engram
	names  names // of tensors; empty: those of transformers
}

// names are those of a family's tensors, layer and expert with the number in them.
type names struct {
	embed, head, norm, layer string
	mixNorm, feedNorm, feed  string
	gate, up, down, expert   string // projections of an MLP
	bias                     string // of a router's choice
}

// usualNames are those of transformers.
var usualNames = names{
	embed: "model.embed_tokens.weight", head: "lm_head.weight", norm: "model.norm.weight", layer: "model.layers.%d.",
	mixNorm: "input_layernorm.weight", feedNorm: "post_attention_layernorm.weight", feed: "mlp.",
	gate: "gate_proj", up: "up_proj", down: "down_proj", expert: "%d.%s.weight", bias: "gate.e_score_correction_bias",
}

func (t traits) tensors() names {
	if t.names.embed == "" {
		return usualNames
	}
	return t.names
}

// block is one decoder layer:
//
//	x = x + mixer(norm(x));  x = x + feed(norm(x))
//
// or, with sites, mixer and feed between the streams of a row instead of the sums.
type block struct {
	mixSite, feedSite site    // nil: plain residuals
	memory            *engram // of n-grams, before the mixer; nil: none
	mixNorm, mlpNorm  kernels.Norm
	in, out           kernels.Weight // stacked input projections, output projection
	inBias            kernels.Weight // none without
	feed              feed
	mla               *mla              // with attn: what is around it, in the place of in
	pooled            *pooled           // in the place of all but out
	attn              *kernels.AttnSpec // exactly one of attn, delta and pooled
	choice            *blockIndex       // with attn: chooses its keys; nil: they are all, or mla chooses
	delta             *kernels.DeltaSpec
	cache             kernels.LayerSpec
	projCols, mixed   int // widths of the mixer's input and output
}

// params returns the parameters that one row reads.
func (b *block) params(hidden int) int64 {
	n := b.feed.params(hidden)
	if b.mixSite != nil {
		n += b.mixSite.params() + b.feedSite.params()
	}
	if b.memory != nil {
		n += b.memory.params()
	}
	if b.choice != nil {
		n += b.choice.params(hidden)
	}
	if b.pooled != nil {
		return n + b.pooled.params(int64(hidden))
	}
	if b.mla != nil {
		return n + b.mla.params(int64(hidden))
	}
	return n + int64(b.projCols)*int64(hidden) + int64(b.mixed)*int64(hidden)
}

// loadBlock loads the decoder layer whose tensors start with prefix: sparse, if its
// feed-forward part is a mixture, own, if an index of its own chooses its keys.
func (l *loader) loadBlock(prefix string, kind checkpoint.LayerKind, sparse, own bool, t traits, rope kernels.Weight) *block {
	c := l.src.Config()
	b := &block{}
	if t.sites != nil {
		b.mixSite, b.feedSite = t.sites(l, prefix)
	}
	if !t.bare {
		n := t.tensors()
		b.mixNorm = l.norm(prefix+n.mixNorm, c.HiddenSize, t)
		b.mlpNorm = l.norm(prefix+n.feedNorm, c.HiddenSize, t)
	}
	switch {
	case kind == checkpoint.FullAttention && c.MLA.KVRank > 0:
		l.loadMLA(b, prefix+"self_attn.", t, own, rope)
	case kind == checkpoint.FullAttention:
		l.loadAttention(b, prefix+"self_attn.", t, own, rope)
	case kind == checkpoint.LinearAttention:
		l.loadDelta(b, prefix+"linear_attn.", t)
	default:
		if l.err == nil {
			l.err = fmt.Errorf("%s: layer %s has unknown kind %q", l.src.Name(), prefix, kind)
		}
	}
	b.feed = l.loadFeed(prefix+t.tensors().feed, sparse, false, t)
	return b
}

func (l *loader) norm(name string, n int, t traits) kernels.Norm {
	return kernels.Norm{W: l.vector(name, n), Eps: float32(l.src.Config().RMSEps), Centered: t.centered}
}

func (l *loader) loadAttention(b *block, prefix string, t traits, own bool, rope kernels.Weight) {
	c := l.src.Config()
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	qRows := q
	if c.AttnOutputGate {
		qRows *= 2
	}
	b.in = l.load(kernels.Matrix, false, c.HiddenSize,
		part{prefix + "q_proj.weight", qRows}, part{prefix + "k_proj.weight", kv}, part{prefix + "v_proj.weight", kv})
	b.out = l.matrix(prefix+"o_proj.weight", c.HiddenSize, q)
	b.attn = &kernels.AttnSpec{
		QHeads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim,
		Scale: invSqrt(c.HeadDim), Gated: c.AttnOutputGate, Rope: rope, Rotary: c.RotaryDim(),
	}
	if c.QKVBias {
		b.inBias = l.load(kernels.Vector, false, 1,
			part{prefix + "q_proj.bias", qRows}, part{prefix + "k_proj.bias", kv}, part{prefix + "v_proj.bias", kv})
	}
	if t.qkNorm || c.QKNorm {
		b.attn.QNorm = l.norm(prefix+"q_norm.weight", c.HeadDim, t)
		b.attn.KNorm = l.norm(prefix+"k_norm.weight", c.HeadDim, t)
	}
	b.cache = kernels.LayerSpec{Kind: kernels.Attention, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim}
	if own && c.Index.Ratio > 0 {
		b.choice = l.loadBlockIndex(prefix+"indexer.", t, rope)
		b.cache.IndexDim, b.cache.IndexRatio = c.Index.Dim, c.Index.Ratio
	}
	b.projCols, b.mixed = qRows+2*kv, q
}

func (l *loader) loadDelta(b *block, prefix string, t traits) {
	c := l.src.Config()
	g := c.GDN
	if t.fused {
		b.in = l.fusedDelta(prefix)
	} else {
		b.in = l.load(kernels.Matrix, false, c.HiddenSize,
			part{prefix + "in_proj_qkv.weight", g.ConvSize()}, part{prefix + "in_proj_z.weight", g.ValueSize()},
			part{prefix + "in_proj_b.weight", g.NumVHeads}, part{prefix + "in_proj_a.weight", g.NumVHeads})
	}
	b.out = l.matrix(prefix+"out_proj.weight", c.HiddenSize, g.ValueSize())
	b.delta = &kernels.DeltaSpec{
		KHeads: g.NumKHeads, VHeads: g.NumVHeads, KDim: g.KDim, VDim: g.VDim, Conv: g.ConvKernel,
		Taps:   l.load(kernels.Taps, false, g.ConvKernel, part{prefix + "conv1d.weight", g.ConvSize()}),
		ALog:   l.vector(prefix+"A_log", g.NumVHeads),
		DtBias: l.vector(prefix+"dt_bias", g.NumVHeads),
		Norm:   kernels.Norm{W: l.vector(prefix+"norm.weight", g.VDim), Eps: float32(c.RMSEps)},
		Gate:   kernels.SiLU,
	}
	if g.OutputGate == checkpoint.Sigmoid {
		b.delta.Gate = kernels.Sigmoid
	}
	b.cache = kernels.LayerSpec{Kind: kernels.Delta, KHeads: g.NumKHeads, VHeads: g.NumVHeads, KDim: g.KDim, VDim: g.VDim, Conv: g.ConvKernel}
	b.projCols, b.mixed = g.ConvSize()+g.ValueSize()+2*g.NumVHeads, g.ValueSize()
}

// scratch are the activations that blocks share.
type scratch struct {
	x, proj, mixed, mlp kernels.Buf
	feed                feedScratch
	mla                 mlaScratch
	streams             streamScratch
	grams               gramScratch
	choice              choiceScratch
	pooled              pooledScratch
	bufs                buffers
}

// newScratch allocates activations for rows rows, at positions below positions, of any
// of the blocks.
func newScratch(be kernels.Backend, rows, positions, hidden int, blocks []*block) (scratch, error) {
	s := scratch{bufs: buffers{be: be}}
	proj, mixed, mlp := 0, 0, 0
	for _, b := range blocks {
		proj, mixed, mlp = max(proj, b.projCols), max(mixed, b.mixed), max(mlp, b.feed.width)
	}
	if s.x = s.bufs.alloc(kernels.BF16, rows, hidden); proj > 0 {
		s.proj, s.mixed = s.bufs.alloc(kernels.BF16, rows, proj), s.bufs.alloc(kernels.BF16, rows, mixed)
	}
	if mlp > 0 {
		s.mlp = s.bufs.alloc(kernels.BF16, rows, mlp)
	}
	s.feed.reserve(&s.bufs, rows, hidden, blocks)
	s.mla.reserve(&s.bufs, rows, positions, blocks)
	s.streams.reserve(&s.bufs, rows, hidden, blocks)
	s.grams.reserve(&s.bufs, rows, blocks)
	s.choice.reserve(&s.bufs, rows, positions, blocks)
	s.pooled.reserve(&s.bufs, rows, positions, blocks)
	if s.bufs.err != nil {
		s.bufs.free()
	}
	return s, s.bufs.err
}

func (s *scratch) free() { s.bufs.free() }

// forward records the block over the rows of b; s.x, or the streams of s, are read and
// updated.
func (bl *block) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, s *scratch) {
	x := s.x.Top(b.Rows)
	if bl.mixSite == nil {
		bl.mix(q, b, c, s, x, x)
		bl.feed.forward(q, b, bl.mlpNorm, s, x, x)
		return
	}
	streams, y := s.streams.x.Top(b.Rows), s.streams.y.Top(b.Rows)
	if bl.memory != nil {
		bl.memory.forward(q, b, c, s)
	}
	bl.mixSite.collapse(q, x, streams, &s.streams)
	bl.mix(q, b, c, s, y, kernels.Buf{})
	bl.mixSite.spread(q, streams, y, &s.streams)
	bl.feedSite.collapse(q, x, streams, &s.streams)
	bl.feed.forward(q, b, bl.mlpNorm, s, y, kernels.Buf{})
	bl.feedSite.spread(q, streams, y, &s.streams)
}

// mix records the mixer over the rows of b, from s.x to out, with a residual or none.
func (bl *block) mix(q kernels.Queue, b *kernels.Batch, c kernels.Layer, s *scratch, out, residual kernels.Buf) {
	x := s.x.Top(b.Rows)
	if bl.pooled != nil {
		q.Norm(x, x, bl.mixNorm)
		bl.pooled.forward(q, b, c, bl.out, x, out, &s.pooled)
		return
	}
	proj := s.proj.Top(b.Rows).Columns(0, bl.projCols)
	mixed := s.mixed.Top(b.Rows).Columns(0, bl.mixed)
	last := kernels.Linear{Residual: residual}
	if bl.mla != nil {
		q.MatMul(out, bl.out, bl.mla.forward(q, b, c, bl, s), last)
		return
	}
	q.MatMul(proj, bl.in, x, kernels.Linear{In: bl.mixNorm, Bias: bl.inBias})
	switch {
	case bl.choice != nil:
		q.Attend(mixed, proj, c, b, bl.choice.forward(q, b, c, x, bl.attn, &s.choice))
	case bl.attn != nil:
		q.Attend(mixed, proj, c, b, bl.attn)
	default:
		q.Delta(mixed, proj, c, b, bl.delta)
	}
	q.MatMul(out, bl.out, mixed, last)
}
