package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// sideStore is what a layer of any kind keeps of each position beside its keys or
// states: a token, a row.
type sideStore struct {
	tokens []int32   // by page and position within it
	rows   []float64 // of a tensor [.., dim]
	dim    int
}

func newSideStore(l kernels.LayerSpec, pages int) *sideStore {
	s := &sideStore{dim: l.RowDim}
	if l.Tokens {
		s.tokens = make([]int32, pages*kernels.PageTokens)
	}
	if s.dim > 0 && pages > 0 {
		s.rows = floats(newFloats(pages*kernels.PageTokens, s.dim))
	}
	return s
}

func place(page int32, pos int) int { return int(page)*kernels.PageTokens + pos%kernels.PageTokens }

// none reports whether nothing is kept.
func (s *sideStore) none() bool { return s.tokens == nil && s.dim == 0 }

// row returns the row at a position, in place.
func (s *sideStore) row(page int32, pos int) []float64 {
	return s.rows[place(page, pos)*s.dim:][:s.dim]
}

// move copies what is kept of one position to another.
func (s *sideStore) move(to int32, pos int, from int32, old int) {
	if s.tokens != nil {
		s.tokens[place(to, pos)] = s.tokens[place(from, old)]
	}
	copy(s.row(to, pos), s.row(from, old))
}

// anyLayer resolves a layer handle of any kind.
func (o *operands) anyLayer(l kernels.Layer) (*caches, kernels.LayerSpec) {
	c := o.find(l.Caches)
	if c == nil {
		return nil, kernels.LayerSpec{}
	}
	if l.Index < 0 || int(l.Index) >= len(c.spec.Layers) {
		o.fail("layer %d of %d", l.Index, len(c.spec.Layers))
		return nil, kernels.LayerSpec{}
	}
	return c, c.spec.Layers[l.Index]
}

// Lookup gathers rows side by side.
func (r *recorder) Lookup(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	r.add("lookup", func() (func() error, error) {
		o := operands{be: r.be}
		w := o.weight(table, kernels.Rows, "table")
		if o.err != nil {
			return nil, o.err
		}
		d := o.kind(dst, "dst", kernels.BF16, 0, int(ids.Cols)*w.cols)
		id := o.kind(ids, "ids", kernels.I32, d.rows, -1)
		return func() error {
			for i := range d.rows {
				for j, n := range id.ints(i) {
					if n < 0 || int(n) >= w.rows {
						return fmt.Errorf("row %d: id %d of a table of %d rows", i, n, w.rows)
					}
					copy(d.floats(i)[j*w.cols:], w.row(int(n)))
				}
			}
			return nil
		}, o.err
	})
}

// Grams hashes n-grams along each row's path.
func (r *recorder) Grams(dst kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.GramSpec) {
	r.add("grams", func() (func() error, error) {
		o := operands{be: r.be}
		c, geo := o.anyLayer(l)
		if o.err == nil {
			o.err = s.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		g := grams{c: c, side: c.side[l.Index], s: *s, t: o.batch(b, "batch")}
		g.dst = o.kind(dst, "dst", kernels.I32, b.Rows, s.Columns())
		if !s.Map.None() {
			g.ids = o.table(s.Map, "map", 1)
		}
		return g.run, o.err
	})
}

// grams is a resolved Grams.
type grams struct {
	dst, ids view
	c        *caches
	side     *sideStore
	t        *tables
	s        kernels.GramSpec
}

func (g *grams) run() error {
	spans, err := g.t.active(g.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		sp := &spans[i]
		for j := range sp.n {
			page, err := g.c.page(sp.slot, sp.start+j)
			if err == nil {
				err = g.row(sp, j)
			}
			if err != nil {
				return fmt.Errorf("span %d: %w", sp.index, err)
			}
			g.side.tokens[place(page, sp.start+j)] = int32(g.t.token.int(sp.off + j))
		}
	}
	return nil
}

// row looks back from row i.
func (g *grams) row(sp *span, i int) error {
	path, ids, ended := sp.path(i), make([]uint64, g.s.Size), false
	for s := range ids {
		pos, token := sp.pos[i]-s, 0
		switch {
		case pos < 0:
			ended = true
		case pos >= sp.start:
			token = g.t.token.int(sp.off + path[pos-sp.start])
		default:
			page, err := g.c.page(sp.slot, pos)
			if err != nil {
				return err
			}
			token = int(g.side.tokens[place(page, pos)])
		}
		if ended = ended || s > 0 && token == int(g.s.Stop); ended {
			ids[s] = uint64(g.s.Pad)
			continue
		}
		if !g.ids.none() {
			if token < 0 || token >= g.ids.rows {
				return fmt.Errorf("row %d: token %d of a map of %d", sp.off+i, token, g.ids.rows)
			}
			token = g.ids.int(token)
		}
		ids[s] = uint64(token)
	}
	g.s.Hash(g.dst.ints(sp.off+i), ids)
	return nil
}
