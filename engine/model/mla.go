package model

import (
	"fmt"
	"io"
	"sync"

	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/kernels"
)

// latentEps is the constant in the norms of the latents, whatever the configuration
// says of the others.
const latentEps = 1e-6

// mla is multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) in its absorbed
// form, in which all heads share one key and one value of the width of the latent:
//
//	cq = norm(x Wqa);  q_h = cq Wqb_h = [nope | pe];  [c | k_pe] = x Wkva;  c = norm(c)
//	query of head h = [rope(pe) | nope W_UK_h]       key = [rope(k_pe) | c]
//	output of head h = (softmax(q k scale) c) W_UV_h
//
// where kv_b_proj holds W_UK_h and W_UV_h by head. The rotated channels come first and
// their pairs, interleaved in the files, are taken apart when they are loaded: those
// of queries by the block that also multiplies by W_UK_h.
type mla struct {
	shape          checkpoint.MLA
	heads          int
	a              kernels.Weight // Wqa and Wkva stacked
	qNorm, kvNorm  kernels.Norm
	qb             kernels.Weight // of the latent, or of the hidden state if it has no rank
	absorb, expand kernels.Weight // Diagonal: a head's query to its latent form; its latent output to its values
	sparse         bool           // the keys are chosen
	index          *index         // by this layer; nil: by the one before
}

// aCols, qCols and proj are the widths of the latents, of all queries as they are
// projected, and of what Attend reads.
func (m *mla) aCols() int   { return m.shape.QRank + m.shape.KVRank + m.shape.Rope }
func (m *mla) qCols() int   { return m.heads * (m.shape.Nope + m.shape.Rope) }
func (m *mla) keyCols() int { return m.shape.Rope + m.shape.KVRank }

func (m *mla) params(hidden int64) int64 {
	s := m.shape
	in := hidden
	if s.QRank > 0 {
		in = int64(s.QRank)
	}
	kvb := int64(m.heads) * (int64(m.keyCols())*int64(s.Nope+s.Rope) + int64(s.V)*int64(s.KVRank))
	if x := m.index; x != nil {
		kvb += int64(x.spec.Heads*x.spec.Dim)*in + hidden*int64(x.spec.Dim+x.spec.Heads)
	}
	return hidden*int64(m.aCols()) + in*int64(m.qCols()) + kvb + int64(m.heads*s.V)*hidden
}

// loadMLA loads latent attention.
func (l *loader) loadMLA(b *block, prefix string, t traits, own bool, rope kernels.Weight) {
	const kva = "kv_a_proj_with_mqa.weight"
	c := l.src.Config()
	s := c.MLA
	m := &mla{shape: s, heads: c.NumHeads}
	latent := func(name string, n int) kernels.Norm {
		return kernels.Norm{W: l.vector(prefix+name, n), Eps: latentEps}
	}
	var parts []kernels.Source
	done := []string{prefix + kva}
	if s.QRank > 0 {
		done = append(done, prefix+"q_a_proj.weight")
		parts = append(parts, l.source(prefix+"q_a_proj.weight", s.QRank, c.HiddenSize))
		m.qNorm = latent("q_a_layernorm.weight", s.QRank)
		m.qb = l.matrix(prefix+"q_b_proj.weight", m.qCols(), s.QRank)
	} else {
		m.qb = l.matrix(prefix+"q_proj.weight", m.qCols(), c.HiddenSize)
	}
	m.kvNorm = latent("kv_a_layernorm.weight", s.KVRank)
	a := l.source(prefix+kva, s.KVRank+s.Rope, c.HiddenSize)
	parts = append(parts, rowsOf(a, 0, s.KVRank))
	for i := range s.Rope {
		at := s.KVRank + interleaved(i, s.Rope)
		parts = append(parts, rowsOf(a, at, at+1))
	}
	kvb := l.source(prefix+"kv_b_proj.weight", m.heads*(s.Nope+s.V), s.KVRank)
	if l.err != nil {
		return
	}
	m.a = l.take(kernels.Tensor{Name: prefix + "q_a_proj+kv_a_proj", Use: kernels.Matrix, Parts: parts}, done...)
	absorb := kernels.Tensor{Name: prefix + "kv_b_proj (keys)", Use: kernels.Diagonal}
	expand := kernels.Tensor{Name: prefix + "kv_b_proj (values)", Use: kernels.Diagonal}
	for h := range m.heads {
		at := h * (s.Nope + s.V)
		absorb.Parts = append(absorb.Parts, m.absorbing(rowsOf(kvb, at, at+s.Nope)))
		expand.Parts = append(expand.Parts, rowsOf(kvb, at+s.Nope, at+s.Nope+s.V))
	}
	m.absorb, m.expand = l.take(absorb), l.take(expand, prefix+"kv_b_proj.weight")
	b.mla = m
	b.out = l.matrix(prefix+"o_proj.weight", c.HiddenSize, m.heads*s.V)
	b.attn = &kernels.AttnSpec{
		QHeads: m.heads, KVHeads: 1, HeadDim: m.keyCols(), ValueDim: s.KVRank,
		Scale: float32(c.AttentionScale()), Rope: rope, Rotary: s.Rope,
	}
	b.cache = kernels.LayerSpec{Kind: kernels.Attention, KVHeads: 1, HeadDim: m.keyCols(), ValueDim: s.KVRank}
	if m.sparse = c.Index.Heads > 0; m.sparse && own {
		m.index = l.loadIndex(prefix+"indexer.", t, rope)
		b.cache.IndexDim = c.Index.Dim
	}
	b.projCols, b.mixed = m.heads*m.keyCols()+m.keyCols()+s.KVRank, m.heads*s.KVRank
}

// interleaved is where channel i of n, pairs (i, i+n/2), stands among pairs (2i, 2i+1).
func interleaved(i, n int) int { return i%(n/2)*2 + i/(n/2) }

// absorbing makes of W_UK of a head, [Nope, KVRank], the matrix [Rope+KVRank,
// Nope+Rope] that takes [nope | pe] to [pe with its pairs taken apart | nope W_UK].
func (m *mla) absorbing(uk kernels.Source) kernels.Source {
	s, size := m.shape, uk.DType.Size()
	rows, cols := s.Rope+s.KVRank, s.Nope+s.Rope
	one := map[kernels.DType][]byte{kernels.DTypeBF16: {0x80, 0x3f}, kernels.DTypeF16: {0, 0x3c}, kernels.DTypeF32: {0, 0, 0x80, 0x3f}}[uk.DType]
	made := &madeBytes{make: func() ([]byte, error) {
		in, out := make([]byte, s.Nope*s.KVRank*size), make([]byte, rows*cols*size)
		if n, err := uk.Data.ReadAt(in, 0); n < len(in) {
			return nil, err
		}
		for i := range s.Rope {
			copy(out[(i*cols+s.Nope+interleaved(i, s.Rope))*size:], one)
		}
		for r := range s.KVRank {
			for j := range s.Nope {
				copy(out[((s.Rope+r)*cols+j)*size:][:size], in[(j*s.KVRank+r)*size:])
			}
		}
		return out, nil
	}}
	return kernels.Source{Name: uk.Name, Rows: rows, Cols: cols, DType: uk.DType, Data: made}
}

// madeBytes are made when they are first read.
type madeBytes struct {
	make  func() ([]byte, error)
	once  sync.Once
	bytes []byte
	err   error
}

// ReadAt implements io.ReaderAt.
func (b *madeBytes) ReadAt(p []byte, off int64) (int, error) {
	b.once.Do(func() { b.bytes, b.err = b.make() })
	if b.err != nil {
		return 0, b.err
	}
	n := copy(p, b.bytes[min(off, int64(len(b.bytes))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// source opens a tensor of that shape.
func (l *loader) source(name string, rows, cols int) kernels.Source {
	if l.err != nil {
		return kernels.Source{}
	}
	var src kernels.Source
	src, l.err = l.src.Matrix(name, rows, cols)
	return src
}

// rowsOf returns rows [from, to) of a source.
func rowsOf(s kernels.Source, from, to int) kernels.Source {
	if s.Data == nil { // of a loader that has failed
		return s
	}
	line := int64(s.Cols * s.DType.Size())
	s.Data = io.NewSectionReader(s.Data, int64(from)*line, int64(to-from)*line)
	s.Rows, s.Name = to-from, fmt.Sprintf("%s[%d:%d]", s.Name, from, to)
	return s
}

// mlaScratch are the activations of latent attention.
type mlaScratch struct {
	a, q, values kernels.Buf
	index        indexScratch
	spec         kernels.AttnSpec // of the layer that is recorded
}

func (s *mlaScratch) reserve(b *buffers, rows, positions int, blocks []*block) {
	s.index.reserve(b, rows, positions, blocks)
	a, q, values := 0, 0, 0
	for _, bl := range blocks {
		if m := bl.mla; m != nil {
			a, q, values = max(a, m.aCols()), max(q, m.qCols()), max(values, m.heads*m.shape.V)
		}
	}
	if a > 0 {
		s.a, s.q, s.values = b.alloc(kernels.BF16, rows, a), b.alloc(kernels.BF16, rows, q), b.alloc(kernels.BF16, rows, values)
	}
}

// forward records latent attention over the rows of b, from x to values, which the
// output projection takes.
func (m *mla) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, bl *block, s *scratch) kernels.Buf {
	n, sh := b.Rows, m.shape
	x, proj, mixed := s.x.Top(n), s.proj.Top(n).Columns(0, bl.projCols), s.mixed.Top(n).Columns(0, bl.mixed)
	a, queries, values := s.mla.a.Top(n).Columns(0, m.aCols()), s.mla.q.Top(n).Columns(0, m.qCols()), s.mla.values.Top(n).Columns(0, m.heads*sh.V)
	q.MatMul(a, m.a, x, kernels.Linear{In: bl.mixNorm})
	if sh.QRank > 0 {
		q.MatMul(queries, m.qb, a.Columns(0, sh.QRank), kernels.Linear{In: m.qNorm})
	} else {
		q.MatMul(queries, m.qb, x, kernels.Linear{In: bl.mixNorm})
	}
	at, key := m.heads*m.keyCols(), m.keyCols()
	q.Blocks(proj.Columns(0, at), m.absorb, queries)
	latent := proj.Columns(at+sh.Rope, at+key)
	q.Copy(proj.Columns(at, at+sh.Rope), a.Columns(sh.QRank+sh.KVRank, m.aCols()))
	q.Norm(latent, a.Columns(sh.QRank, sh.QRank+sh.KVRank), m.kvNorm)
	q.Copy(proj.Columns(at+key, at+key+sh.KVRank), latent)
	s.mla.spec = *bl.attn
	given := s.mla.index.given
	if m.index != nil && given.None() {
		m.index.forward(q, b, c, x, a.Columns(0, sh.QRank), bl.mixNorm, m.qNorm, &s.mla.index)
	}
	switch {
	case !given.None():
		s.mla.spec.Keys = given
	case m.sparse:
		s.mla.spec.Keys = s.mla.index.mask.Top(n)
	}
	q.Attend(mixed, proj, c, b, &s.mla.spec)
	q.Blocks(values, m.expand, mixed)
	return values
}
