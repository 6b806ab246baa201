package model

import (
	"exacta.dev/exacta/kernels"
)

// DeepSeek-V4.1 (transformers' DeepseekV41ForCausalLM): DeepSeek-V4 with a few layers
// that make the groups which those behind them see, down to groups of one position,
// and some that choose among them, the later ones within blocks that one chooses.
// Queries are not normed; cached keys and what an index compares are rounded to few
// bits. A place takes the streams together by the coefficients of the place before it,
// and the last ones go to the final norm.
var deepseekV41Traits = traits{
	names: deepseekV4Traits.names, shared: "shared_experts",
	sites: func(l *loader, prefix string) (site, site) {
		iters := l.src.Config().Streams.Iters
		return l.loadLateHyper(prefix+"hc_attn_", iters, prefix == "layers.0." || prefix == "mtp.0."), l.loadLateHyper(prefix+"hc_ffn_", iters, false)
	},
	mixer:  func(l *loader, _ string) site { return carried(l.src.Config().Streams.Count) },
	memory: (*loader).loadEngram,
}

// lateHyper is a hyper that takes the streams together by the coefficients of the site
// before it, the first one as they begin, all alike.
type lateHyper struct {
	hyper
	first bool
}

func (l *loader) loadLateHyper(prefix string, iters int, first bool) site {
	return &lateHyper{*l.loadHyper(prefix, iters).(*hyper), first}
}

func (h *lateHyper) widths() siteWidths {
	w := h.hyper.widths()
	w.mix = true // where the coefficients for the next site stand
	return w
}

func (h *lateHyper) collapse(q kernels.Queue, dst, x kernels.Buf, s *streamScratch) {
	weights, before := h.weights(x, s), s.mix.Top(int(x.Rows)).Columns(0, h.spec.Streams)
	q.Hyper(weights, x, &h.spec)
	if h.first {
		q.Copy(dst, x.Columns(0, h.hidden))
	} else {
		q.Collapse(dst, x, before, 1)
	}
	q.Copy(before, weights.Columns(0, h.spec.Streams))
}

// carried is the mixer behind the last layer, of that many streams: it has no
// coefficients of its own.
type carried int

func (n carried) widths() siteWidths { return siteWidths{count: int(n)} }

func (carried) params() int64 { return 0 }

func (n carried) collapse(q kernels.Queue, dst, x kernels.Buf, s *streamScratch) {
	q.Collapse(dst, x, s.mix.Top(int(x.Rows)).Columns(0, int(n)), 1)
}

func (carried) spread(kernels.Queue, kernels.Buf, kernels.Buf, *streamScratch) {}

// loadShared loads what layer i of a family with shared groups makes and chooses. The
// index's keys are made of the groups' before their rotation.
func (l *loader) loadShared(b *block, p *pooled, prefix string, i int, rope kernels.Weight) {
	c := l.src.Config()
	s, ratio, d := c.Pooled.Share, c.Pooled.Ratios[i], c.Index.Dim
	p.from = s.Source[i] - i
	if p.from == 0 {
		b.cache.Ratio, b.cache.IndexDim = ratio, d
		p.groups = l.loadSharedPool(prefix+"compressor.", p.dim, ratio, rope)
	}
	if !c.Index.Own[i] {
		return
	}
	at := prefix + "indexer."
	p.index = &chooser{
		q: l.matrix(at+"wq_b.weight", c.Index.Heads*d, c.Pooled.QRank), heads: l.matrix(at+"weights_proj.weight", c.Index.Heads, c.HiddenSize),
		query:  kernels.RotateSpec{Heads: c.Index.Heads, Dim: d, Rotary: c.Pooled.Rope, Rope: rope, Round: kernels.RoundFP4},
		spec:   kernels.ChooseSpec{Heads: c.Index.Heads, Dim: d, TopK: c.Index.TopK, BestBlocks: s.Blocks, BlockSize: s.BlockSize},
		shared: true, publishes: i == s.Candidates, within: s.Candidates >= 0 && i > s.Candidates,
	}
	if p.from == 0 {
		p.index.pool = pool{
			proj: l.matrix(at+"wk.weight", d, p.dim), norm: l.norm(at+"k_norm.weight", d, traits{}), dim: d, cols: d,
			place: kernels.RotateSpec{Heads: 1, Dim: d, Rotary: c.Pooled.Rope, Rope: rope, Ratio: ratio, Round: kernels.RoundFP4},
		}
	}
}

// loadSharedPool loads what makes the keys of groups: without gates where they are of
// one position.
func (l *loader) loadSharedPool(prefix string, dim, ratio int, rope kernels.Weight) *pool {
	c := l.src.Config()
	p := &pool{
		norm: l.norm(prefix+"norm.weight", dim, traits{}), dim: dim, cols: 2 * dim,
		place: kernels.RotateSpec{Heads: 1, Dim: dim, Rotary: c.Pooled.Rope, Rope: rope, Ratio: ratio, Round: kernels.RoundFP4Fine},
	}
	parts := []part{{prefix + "wkv.weight", dim}}
	if p.single = ratio == 1; p.single {
		p.cols = dim
	} else {
		parts = append(parts, part{prefix + "wgate.weight", dim})
	}
	p.proj = l.load(kernels.Matrix, false, c.HiddenSize, parts...)
	return p
}
