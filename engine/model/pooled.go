package model

import (
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// pooled is attention over a window and over keys pooled from groups of positions
// (DeepSeek-V4), with one key, its own value, for all heads:
//
//	cq = norm(x Wqa);  q_h = rope(unit(cq Wqb_h));  kv = rope(norm(x Wkv))
//	o_h = turned back(attention of q_h to the window and the groups, with a sink)
//	y = [.. | (o of a group of heads) Woa | ..] Wob
type pooled struct {
	shape            checkpoint.Pooled
	heads, dim       int
	a                kernels.Weight // Wqa and Wkv stacked
	qNorm, kvNorm    kernels.Norm
	qb               kernels.Weight
	outA             kernels.Weight // Diagonal: the groups' projections
	spec             kernels.PooledSpec
	query, key, back kernels.RotateSpec
	groups           *pool    // nil: the window alone
	index            *chooser // nil: all groups are seen, or those that a layer before chose
	from             int      // the layer whose groups are seen, relative to this one
	shared           bool     // groups and choices may be those of layers before
}

// pool makes the keys of groups (the compressor): keys and gates of each position,
// averaged over a group, normed, and rotated by its first position.
type pool struct {
	proj  kernels.Weight // keys and gates stacked
	spec  kernels.PoolSpec
	norm  kernels.Norm
	place kernels.RotateSpec
	dim   int // of a key
	cols  int // of proj
	// single says that a group is one position, whose key is the projection.
	single bool
}

// chooser chooses groups by keys of its own.
type chooser struct {
	pool
	q, heads kernels.Weight
	query    kernels.RotateSpec
	spec     kernels.ChooseSpec
	// Of layers that share groups: the pool, of the layer that makes them, makes
	// keys of the groups' own; publishes says that the best blocks are chosen too,
	// within, that the choice is made among those.
	shared, publishes, within bool
}

func (p *pooled) params(hidden int64) int64 {
	n := hidden * int64(p.shape.QRank+p.dim)
	n += int64(p.shape.QRank) * int64(p.heads*p.dim)
	n += int64(p.heads*p.dim)*int64(p.shape.ORank) + int64(p.shape.OGroups*p.shape.ORank)*hidden
	if p.groups != nil {
		n += hidden * int64(p.groups.cols)
	}
	if x := p.index; x != nil {
		in := hidden
		if p.shared { // its keys are made of the groups'
			in = int64(p.dim)
		}
		n += in*int64(x.cols) + hidden*int64(x.spec.Heads) + int64(p.shape.QRank)*int64(x.spec.Heads*x.spec.Dim)
	}
	return n
}

// seen returns the keys that position n sees at most.
func (p *pooled) seen(b *block, n int) int {
	keys := min(n+1, b.cache.Window)
	switch {
	case p.index != nil:
		return keys + min(b.cache.Groups(n+1), p.index.spec.TopK)
	case p.groups != nil:
		return keys + b.cache.Groups(n+1)
	}
	return keys
}

// ropes are the rotary tables of a model: of its layers, and of those with groups.
type ropes struct{ main, groups kernels.Weight }

// loadPooled loads the attention of layer i of the trunk, or, with i behind it, of
// a drafting layer, which has a window alone.
func (l *loader) loadPooled(b *block, prefix string, i int, r ropes) {
	c := l.src.Config()
	s, plain := c.Pooled, traits{}
	p := &pooled{shape: s, heads: c.NumHeads, dim: c.HeadDim}
	ratio, overlap, rope := 0, false, r.main
	if i < len(s.Ratios) && s.Ratios[i] > 0 {
		ratio, overlap, rope = s.Ratios[i], s.Overlap[i], r.groups
	}
	wide, part1 := p.heads*p.dim, p.heads/s.OGroups*p.dim
	p.a = l.load(kernels.Matrix, false, c.HiddenSize, part{prefix + "wq_a.weight", s.QRank}, part{prefix + "wkv.weight", p.dim})
	p.qNorm, p.kvNorm = l.norm(prefix+"q_norm.weight", s.QRank, plain), l.norm(prefix+"kv_norm.weight", p.dim, plain)
	p.qb = l.matrix(prefix+"wq_b.weight", wide, s.QRank)
	p.outA = l.diagonal(prefix+"wo_a.weight", s.OGroups, s.ORank, part1)
	b.out = l.matrix(prefix+"wo_b.weight", c.HiddenSize, s.OGroups*s.ORank)
	p.query = kernels.RotateSpec{Heads: p.heads, Dim: p.dim, Rotary: s.Rope, Rope: rope, Unit: s.Share == nil, Eps: float32(c.RMSEps)}
	p.key = kernels.RotateSpec{Heads: 1, Dim: p.dim, Rotary: s.Rope, Rope: rope}
	p.back = kernels.RotateSpec{Heads: p.heads, Dim: p.dim, Rotary: s.Rope, Rope: rope, Inverse: true}
	p.spec = kernels.PooledSpec{
		Heads: p.heads, Dim: p.dim, Scale: invSqrt(p.dim), Sink: l.vector(prefix+"attn_sink", p.heads), Groups: ratio > 0,
	}
	b.pooled = p
	if p.shared = s.Share != nil; p.shared {
		p.key.Round = kernels.RoundFP8
		b.cache = kernels.LayerSpec{Kind: kernels.Pooled, HeadDim: p.dim, Window: s.Window}
		if ratio > 0 {
			l.loadShared(b, p, prefix, i, rope)
		}
		return
	}
	b.cache = kernels.LayerSpec{Kind: kernels.Pooled, HeadDim: p.dim, Window: s.Window, Ratio: ratio, Overlap: overlap}
	if ratio > 0 {
		p.groups = l.loadPool(prefix+"compressor.", p.dim, b.cache, rope)
	}
	if overlap {
		p.index = l.loadChooser(prefix+"indexer.", b.cache, rope)
		b.cache.IndexDim = c.Index.Dim
	}
}

// loadPool loads what pools keys of dim channels for a layer.
func (l *loader) loadPool(prefix string, dim int, s kernels.LayerSpec, rope kernels.Weight) *pool {
	c := l.src.Config()
	wide := s.Reach() / s.Ratio * dim
	return &pool{
		proj: l.load(kernels.Matrix, false, c.HiddenSize, part{prefix + "wkv.weight", wide}, part{prefix + "wgate.weight", wide}),
		spec: kernels.PoolSpec{Bias: l.load(kernels.Table, false, wide, part{prefix + "ape", s.Ratio})},
		norm: l.norm(prefix+"norm.weight", dim, traits{}), dim: dim, cols: 2 * wide,
		place: kernels.RotateSpec{Heads: 1, Dim: dim, Rotary: c.Pooled.Rope, Rope: rope, Ratio: s.Ratio},
	}
}

// loadChooser loads what chooses groups.
func (l *loader) loadChooser(prefix string, s kernels.LayerSpec, rope kernels.Weight) *chooser {
	c := l.src.Config()
	n, d := c.Index.Heads, c.Index.Dim
	x := &chooser{
		pool: *l.loadPool(prefix+"compressor.", d, s, rope), q: l.matrix(prefix+"wq_b.weight", n*d, c.Pooled.QRank),
		heads: l.matrix(prefix+"weights_proj.weight", n, c.HiddenSize),
		query: kernels.RotateSpec{Heads: n, Dim: d, Rotary: c.Pooled.Rope, Rope: rope},
		spec:  kernels.ChooseSpec{Heads: n, Dim: d, TopK: c.Index.TopK},
	}
	x.pool.spec.Index = true
	return x
}

// diagonal loads n matrices [rows, cols] that stand below each other.
func (l *loader) diagonal(name string, n, rows, cols int) kernels.Weight {
	src := l.source(name, n*rows, cols)
	if l.err != nil {
		return kernels.Weight{}
	}
	t := kernels.Tensor{Name: name, Use: kernels.Diagonal}
	for i := range n {
		t.Parts = append(t.Parts, rowsOf(src, i*rows, (i+1)*rows))
	}
	return l.take(t, name)
}

// pooledScratch are the activations of pooled attention.
type pooledScratch struct {
	a, cq, q, kv, out kernels.Buf
	raw, key, latent  kernels.Buf // of a pool
	query, heads      kernels.Buf // of a chooser
	mask, best        kernels.Buf
	spec              kernels.PooledSpec // of the layer that is recorded
	choose            kernels.ChooseSpec
}

func (s *pooledScratch) reserve(b *buffers, rows, positions int, blocks []*block) {
	a, cq, q, kv, out, raw, query, heads, words, best := 0, 0, 0, 0, 0, 0, 0, 0, 0, false
	for _, bl := range blocks {
		p := bl.pooled
		if p == nil {
			continue
		}
		a, cq, q, kv = max(a, p.shape.QRank+p.dim), max(cq, p.shape.QRank), max(q, p.heads*p.dim), max(kv, p.dim)
		out = max(out, p.shape.OGroups*p.shape.ORank)
		if p.groups != nil {
			raw = max(raw, p.groups.cols)
		}
		if x := p.index; x != nil {
			raw, query, heads = max(raw, x.cols), max(query, x.spec.Heads*x.spec.Dim), max(heads, x.spec.Heads)
			words, best = max(words, kernels.MaskWords(bl.cache.Groups(positions))), best || x.publishes
		}
	}
	if a == 0 {
		return
	}
	s.a, s.cq, s.q = b.alloc(kernels.BF16, rows, a), b.alloc(kernels.BF16, rows, cq), b.alloc(kernels.BF16, rows, q)
	s.kv, s.out = b.alloc(kernels.BF16, rows, kv), b.alloc(kernels.BF16, rows, out)
	if raw > 0 {
		s.raw, s.key, s.latent = b.alloc(kernels.F32, rows, raw), b.alloc(kernels.BF16, rows, kv), b.alloc(kernels.BF16, rows, kv)
	}
	if heads > 0 {
		s.query, s.heads, s.mask = b.alloc(kernels.BF16, rows, query), b.alloc(kernels.F32, rows, heads), b.alloc(kernels.I32, rows, max(1, words))
	}
	if best {
		s.best = b.alloc(kernels.I32, rows, max(1, words))
	}
}

// forward records the attention over the rows of b, from x, which is normed, to y
// (BF16 [rows, HiddenSize]).
func (p *pooled) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, out kernels.Weight, x, y kernels.Buf, s *pooledScratch) {
	n, sh := b.Rows, p.shape
	cq, queries := s.cq.Top(n).Columns(0, sh.QRank), s.q.Top(n).Columns(0, p.heads*p.dim)
	a, kv := p.keys(q, b, x, s)
	q.Norm(cq, a.Columns(0, sh.QRank), p.qNorm)
	q.MatMul(queries, p.qb, cq, kernels.Linear{})
	q.Rotate(queries, queries, b, &p.query)
	s.spec = p.spec
	from := kernels.Layer{Caches: c.Caches, Index: c.Index + int32(p.from)}
	switch {
	case p.shared:
		p.forwardShared(q, b, from, x, cq, s)
	case p.groups != nil:
		q.Keep(p.groups.forward(q, b, c, x, s), c, b, false)
	}
	if p.index != nil && !p.shared {
		s.spec.Chosen = p.index.forward(q, b, c, x, cq, s)
	}
	q.AttendPooled(queries, queries, kv, c, from, b, &s.spec)
	q.Rotate(queries, queries, b, &p.back)
	o := s.out.Top(n).Columns(0, sh.OGroups*sh.ORank)
	q.Blocks(o, p.outA, queries)
	q.MatMul(y, out, o, kernels.Linear{})
}

// keys records the window's keys of the rows of b, from x, and returns what they are
// made of and, in s, the keys.
func (p *pooled) keys(q kernels.Queue, b *kernels.Batch, x kernels.Buf, s *pooledScratch) (a, kv kernels.Buf) {
	from, to := p.shape.QRank, p.shape.QRank+p.dim
	a, kv = s.a.Top(b.Rows).Columns(0, to), s.kv.Top(b.Rows).Columns(0, p.dim)
	q.MatMul(a, p.a, x, kernels.Linear{})
	q.Norm(kv, a.Columns(from, to), p.kvNorm)
	q.Rotate(kv, kv, b, &p.key)
	return a, kv
}

// keep records that the keys of x, which is normed, are in the window at the positions
// of b. What the rows attend to, with queries left over, is not used.
func (p *pooled) keep(q kernels.Queue, b *kernels.Batch, c kernels.Layer, x kernels.Buf, s *pooledScratch) {
	_, kv := p.keys(q, b, x, s)
	s.spec = p.spec
	s.spec.Block = false
	queries := s.q.Top(b.Rows).Columns(0, p.heads*p.dim)
	q.AttendPooled(queries, queries, kv, c, c, b, &s.spec)
}

// forwardShared records what a layer that shares groups adds to them and chooses of
// them; groups is the layer that makes them. The choice stays for the layers behind.
func (p *pooled) forwardShared(q kernels.Queue, b *kernels.Batch, groups kernels.Layer, x, cq kernels.Buf, s *pooledScratch) {
	n := b.Rows
	if !p.spec.Groups {
		return
	}
	if p.groups != nil {
		latent, key := s.latent.Top(n).Columns(0, p.dim), s.key.Top(n).Columns(0, p.dim)
		p.groups.latents(q, b, groups, x, s)
		i := &p.index.pool
		index := s.key.Top(n).Columns(0, i.dim)
		q.MatMul(index, i.proj, latent, kernels.Linear{})
		q.Norm(index, index, i.norm)
		q.Rotate(index, index, b, &i.place)
		q.Keep(index, groups, b, true)
		q.Rotate(key, latent, b, &p.groups.place)
		q.Keep(key, groups, b, false)
	}
	s.spec.Chosen = s.mask.Top(n)
	if p.index != nil {
		p.index.choice(q, b, groups, x, cq, s)
	}
}

// latents records the pooled keys of the groups that the rows of b complete, normed and
// not rotated, in s.latent.
func (p *pool) latents(q kernels.Queue, b *kernels.Batch, c kernels.Layer, x kernels.Buf, s *pooledScratch) {
	n := b.Rows
	latent := s.latent.Top(n).Columns(0, p.dim)
	if p.single {
		q.MatMul(latent, p.proj, x, kernels.Linear{})
	} else {
		raw := s.raw.Top(n).Columns(0, p.cols)
		q.MatMul(raw, p.proj, x, kernels.Linear{})
		q.Pool(latent, raw, c, b, &p.spec)
	}
	q.Norm(latent, latent, p.norm)
}

// forward records the keys of the groups that the rows of b complete.
func (p *pool) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, x kernels.Buf, s *pooledScratch) kernels.Buf {
	n := b.Rows
	latent, key := s.latent.Top(n).Columns(0, p.dim), s.key.Top(n).Columns(0, p.dim)
	p.latents(q, b, c, x, s)
	q.Rotate(key, latent, b, &p.place)
	return key
}

// forward records the choice for the rows of b and returns its mask.
func (x *chooser) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, in, cq kernels.Buf, s *pooledScratch) kernels.Buf {
	q.Keep(x.pool.forward(q, b, c, in, s), c, b, true)
	x.choice(q, b, c, in, cq, s)
	return s.mask.Top(b.Rows)
}

// choice records the choice of groups of layer c.
func (x *chooser) choice(q kernels.Queue, b *kernels.Batch, c kernels.Layer, in, cq kernels.Buf, s *pooledScratch) {
	n := b.Rows
	query, heads, mask := s.query.Top(n).Columns(0, x.spec.Heads*x.spec.Dim), s.heads.Top(n).Columns(0, x.spec.Heads), s.mask.Top(n)
	q.MatMul(query, x.q, cq, kernels.Linear{})
	q.Rotate(query, query, b, &x.query)
	q.MatMul(heads, x.heads, in, kernels.Linear{})
	if s.choose = x.spec; x.publishes {
		s.choose.Best = s.best.Top(n)
	}
	if x.within {
		s.choose.Within = s.best.Top(n)
	}
	q.Choose(mask, query, heads, c, b, &s.choose)
}
