package model

import (
	"errors"
	"fmt"
	"slices"

	"exacta.dev/exacta/kernels"
)

// ngrams is a table of embeddings of hashed n-grams (Engram, arXiv:2601.07372): a row
// looks up one embedding for each of the hashes of the n-grams that end in it. The
// table stays in its file, of which the rows that are asked for are read. Tokens before
// a row are those of its own path; the cache of the layer where the table stands keeps
// them by position.
type ngrams struct {
	spec  kernels.GramSpec
	table kernels.Weight
	width int // of all embeddings of a row
}

// gramTable says what a table is: embeddings of dim columns in parts one above another.
type gramTable struct {
	spec  kernels.GramSpec
	dim   int
	parts []part
}

// stored checks numbers of a table's hashes that a file holds against those that follow
// from the configuration; a file without them is fine.
func (l *loader) stored(name string, want []int64) {
	if l.err != nil || !l.src.Has(name) {
		return
	}
	have, err := l.src.Ints(name, len(want))
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	if err == nil && !slices.Equal(have, want) {
		err = fmt.Errorf("%s: tensor %s is %d; %d follows from config.json", l.src.Name(), name, have, want)
	}
	l.err = err
}

// loadGrams takes a table in.
func (l *loader) loadGrams(t gramTable) *ngrams {
	return &ngrams{spec: t.spec, table: l.load(kernels.Rows, false, t.dim, t.parts...), width: t.dim * t.spec.Columns()}
}

// forward records the lookup for the rows of b and returns the embeddings, BF16
// [rows, width].
func (g *ngrams) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, s *gramScratch) kernels.Buf {
	ids, out := s.ids.Top(b.Rows).Columns(0, g.spec.Columns()), s.rows.Top(b.Rows).Columns(0, g.width)
	q.Grams(ids, c, b, &g.spec)
	q.Lookup(out, g.table, ids)
	return out
}

// engram gives residual streams what the n-grams of a row stand for:
//
//	e = embeddings;  [k | v] = e Wkv;  gate_h = sigmoid(ssqrt(norm(x_h) . norm(k_h) / sqrt(H)))
//	x_h = x_h + gate_h * v
//
// with ssqrt(d) = sign(d) sqrt(|d|), and, where there is a blend, a convolution of the
// gated values over positions (kernels.BlendSpec).
type engram struct {
	grams       *ngrams
	kv          kernels.Weight // [count*H + H, width]
	qNorm, norm kernels.Norm   // of the streams and of k, by stream
	count, h    int
	blend       *kernels.BlendSpec // nil: none
}

// cache adds what the memory keeps of positions to a layer's cache.
func (m *engram) cache(l *kernels.LayerSpec) {
	l.Tokens = true
	if m.blend != nil {
		l.RowDim = m.h + m.count
	}
}

// params is the number of parameters of matrices that a row reads.
func (m *engram) params() int64 { return int64(m.count+1) * int64(m.h) * int64(m.grams.width) }

// gramScratch are the activations of n-gram memories.
type gramScratch struct {
	ids, rows, kv kernels.Buf
}

// reserve allocates what any of the blocks needs; nothing if none has a memory.
func (s *gramScratch) reserve(b *buffers, rows int, blocks []*block) {
	ids, width, kv := 0, 0, 0
	for _, bl := range blocks {
		if m := bl.memory; m != nil {
			ids, width, kv = max(ids, m.grams.spec.Columns()), max(width, m.grams.width), max(kv, (m.count+1)*m.h+m.count)
		}
	}
	if ids > 0 {
		s.ids, s.rows, s.kv = b.alloc(kernels.I32, rows, ids), b.alloc(kernels.BF16, rows, width), b.alloc(kernels.BF16, rows, kv)
	}
}

// forward records the memory over the rows of b; the streams are read and updated.
func (m *engram) forward(q kernels.Queue, b *kernels.Batch, c kernels.Layer, s *scratch) {
	n, all := b.Rows, m.count*m.h
	x, normed, kv := s.streams.x.Top(n), s.streams.normed.Top(n), s.grams.kv.Top(n)
	q.MatMul(kv.Columns(0, all+m.h), m.kv, m.grams.forward(q, b, c, &s.grams), kernels.Linear{})
	k, v := kv.Columns(0, all), kv.Columns(all, all+m.h)
	q.Norm(k, k, m.norm)
	q.Norm(normed, x, m.qNorm)
	if m.blend == nil {
		inject := s.streams.inject.Top(n)
		q.Gate(inject, normed, k)
		q.Spread(x, v, inject, kernels.Buf{})
		return
	}
	q.Gate(kv.Columns(all+m.h, all+m.h+m.count), normed, k)
	q.Blend(x, kv.Columns(all, all+m.h+m.count), c, b, m.blend)
}

// primesFrom returns n primes from the (skip+1)-th on that is at least from.
func primesFrom(from uint32, skip, n int) []uint32 {
	out := make([]uint32, 0, n)
	for p := from; len(out) < n; p++ {
		if !isPrime(p) {
			continue
		}
		if skip--; skip < 0 {
			out = append(out, p)
		}
	}
	return out
}

func isPrime(p uint32) bool {
	if p < 4 {
		return p > 1
	}
	for d := uint32(2); uint64(d)*uint64(d) <= uint64(p); d++ {
		if p%d == 0 {
			return false
		}
	}
	return true
}

// stacked returns the offsets of tables of those sizes one above another, and the sum
// of the sizes.
func stacked(sizes []uint32) (offsets []uint32, total int) {
	for _, n := range sizes {
		offsets = append(offsets, uint32(total))
		total += int(n)
	}
	return offsets, total
}

// shards names the parts of a table of rows rows in n of equal size, the last one
// smaller where that does not come out even.
func shards(pattern string, rows, n int) (parts []part) {
	size := (rows + n - 1) / n
	for i := 0; i*size < rows; i++ {
		parts = append(parts, part{fmt.Sprintf(pattern, i), min(size, rows-i*size)})
	}
	return parts
}
