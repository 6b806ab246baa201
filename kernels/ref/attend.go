package ref

import (
	"fmt"
	"math"

	"exacta.dev/exacta/kernels"
)

// attention is a resolved Attend.
type attention struct {
	dst, proj    view
	c            *caches
	kv           *kvStore
	t            *tables
	s            kernels.AttnSpec
	qNorm, kNorm norm
	rope         *weight
	keys         view // none: all
}

// Attend runs an attention layer as one softmax over each row's keys.
func (r *recorder) Attend(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.AttnSpec) {
	r.add("attend", func() (func() error, error) {
		o := operands{be: r.be}
		a := &attention{s: *s}
		c, geo := o.layer(l, kernels.Attention)
		if o.err != nil {
			return nil, o.err
		}
		a.c, a.kv = c, c.attn[l.Index]
		if s.KVHeads != geo.KVHeads || s.HeadDim != geo.HeadDim || s.Values() != geo.Values() || s.QHeads <= 0 || s.QHeads%s.KVHeads != 0 {
			o.fail("%d query heads over %d KV heads of %d, values of %d; the cache has %d of %d and %d, and query heads must be a multiple",
				s.QHeads, s.KVHeads, s.HeadDim, s.Values(), geo.KVHeads, geo.HeadDim, geo.Values())
			return nil, o.err
		}
		if s.Gated && s.Values() != s.HeadDim {
			o.fail("gates of %d for values of %d", s.HeadDim, s.Values())
		}
		a.t = o.batch(b, "batch")
		a.dst = o.kind(dst, "dst", kernels.BF16, b.Rows, s.QHeads*s.Values())
		a.proj = o.kind(proj, "proj", kernels.BF16, b.Rows, a.qCols()+s.KVHeads*(s.HeadDim+s.Values()))
		a.qNorm = o.norm(s.QNorm, s.HeadDim, "query norm")
		a.kNorm = o.norm(s.KNorm, s.HeadDim, "key norm")
		if !s.Keys.None() {
			a.keys = o.kind(s.Keys, "keys", kernels.I32, b.Rows, -1)
		}
		if !s.Rope.None() {
			a.rope = o.weight(s.Rope, kernels.Table, "rope")
			if o.err == nil && (s.Rotary <= 0 || s.Rotary%2 != 0 || s.Rotary > s.HeadDim || a.rope.cols != s.Rotary) {
				o.fail("%d rotary channels of %d with a table of %d columns", s.Rotary, s.HeadDim, a.rope.cols)
			}
		}
		return func() error { return a.run(r.be) }, o.err
	})
}

func (a *attention) qCols() int {
	n := a.s.QHeads * a.s.HeadDim
	if a.s.Gated {
		n *= 2
	}
	return n
}

// attnRows is the working set of one span: q after norm and rotation, and the keys
// and values that the span adds.
type attnRows struct {
	q, gate, k, v [][]float64 // by row of the span; heads side by side
}

func (a *attention) run(be *Backend) error {
	spans, err := a.t.active(a.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		sp := &spans[i]
		rows, err := a.project(sp)
		if err != nil {
			return fmt.Errorf("span %d: %w", sp.index, err)
		}
		prefix, err := a.prefix(sp)
		if err != nil {
			return fmt.Errorf("span %d: %w", sp.index, err)
		}
		if err := a.store(sp, rows); err != nil {
			return fmt.Errorf("span %d: %w", sp.index, err)
		}
		parallel(sp.n*a.s.QHeads, func(j int) { a.head(sp, rows, prefix, j/a.s.QHeads, j%a.s.QHeads) })
		be.work.AttendRows += uint64(sp.n)
		for _, pos := range sp.pos {
			be.work.KVTokens += uint64(max(0, pos+1-a.s.FirstKey))
		}
	}
	return nil
}

// project cuts the projection into heads, norms and rotates.
func (a *attention) project(sp *span) (*attnRows, error) {
	d, r := a.s.HeadDim, &attnRows{}
	for i := range sp.n {
		x := a.proj.floats(sp.off + i)
		q := make([]float64, a.s.QHeads*d)
		gate := make([]float64, a.s.QHeads*d)
		for h := range a.s.QHeads {
			if a.s.Gated {
				copy(q[h*d:(h+1)*d], x[2*h*d:])
				copy(gate[h*d:(h+1)*d], x[(2*h+1)*d:])
			} else {
				copy(q[h*d:(h+1)*d], x[h*d:])
			}
		}
		kv := a.s.KVHeads * d
		k := append([]float64(nil), x[a.qCols():a.qCols()+kv]...)
		v := append([]float64(nil), x[a.qCols()+kv:]...)
		if err := a.place(q, a.qNorm, sp.pos[i]); err != nil {
			return nil, err
		}
		if err := a.place(k, a.kNorm, sp.pos[i]); err != nil {
			return nil, err
		}
		r.q, r.gate, r.k, r.v = append(r.q, q), append(r.gate, gate), append(r.k, k), append(r.v, v)
	}
	return r, nil
}

// place norms each head of x and rotates it to a position.
func (a *attention) place(x []float64, n norm, pos int) error {
	d := a.s.HeadDim
	for at := 0; at < len(x); at += d {
		n.apply(x[at:at+d], x[at:at+d])
	}
	if a.rope == nil {
		return nil
	}
	if pos >= a.rope.rows {
		return fmt.Errorf("position %d of a rope table of %d", pos, a.rope.rows)
	}
	half := a.s.Rotary / 2
	cos, sin := a.rope.row(pos)[:half], a.rope.row(pos)[half:]
	for at := 0; at < len(x); at += d {
		for i := range half {
			lo, hi := x[at+i], x[at+half+i]
			x[at+i] = lo*cos[i] - hi*sin[i]
			x[at+half+i] = hi*cos[i] + lo*sin[i]
		}
	}
	return nil
}

// prefix returns the cached keys and values at FirstKey..start-1.
func (a *attention) prefix(sp *span) (*attnRows, error) {
	r := &attnRows{}
	for pos := a.s.FirstKey; pos < sp.start; pos++ {
		page, err := a.c.page(sp.slot, pos)
		if err != nil {
			return nil, err
		}
		r.k = append(r.k, a.kv.key(page, pos))
		r.v = append(r.v, a.kv.value(page, pos))
	}
	return r, nil
}

// store keeps the span's keys and values in the cache, row i in the place of
// position start+i; see compact.
func (a *attention) store(sp *span, r *attnRows) error {
	for i := range sp.n {
		page, err := a.c.page(sp.slot, sp.start+i)
		if err != nil {
			return err
		}
		copy(a.kv.key(page, sp.start+i), r.k[i])
		copy(a.kv.value(page, sp.start+i), r.v[i])
	}
	return nil
}

// compact moves what a layer keeps of a path by position to the places of its
// positions. Rows only move down, each to a place that nothing later on the path needs.
func (c *caches) compact(layer int, sp *span, path []int) error {
	kv, side := c.attn[layer], c.side[layer]
	if kv == nil && side.none() {
		return nil
	}
	for j, i := range path {
		if i == j {
			continue
		}
		from, err := c.page(sp.slot, sp.start+i)
		if err != nil {
			return err
		}
		to, err := c.page(sp.slot, sp.start+j)
		if err != nil {
			return err
		}
		side.move(to, sp.start+j, from, sp.start+i)
		if kv == nil {
			continue
		}
		copy(kv.key(to, sp.start+j), kv.key(from, sp.start+i))
		copy(kv.value(to, sp.start+j), kv.value(from, sp.start+i))
		copy(kv.indexKey(to, sp.start+j), kv.indexKey(from, sp.start+i))
	}
	return nil
}

// head computes one query head of one row: softmax(q Kᵀ scale) V, gated.
func (a *attention) head(sp *span, r, prefix *attnRows, row, h int) {
	d, vd := a.s.HeadDim, a.s.Values()
	kvh := h / (a.s.QHeads / a.s.KVHeads)
	path := sp.path(row)
	keys, values := make([][]float64, 0, len(prefix.k)+len(path)), make([][]float64, 0, len(prefix.k)+len(path))
	for i := range prefix.k {
		if !a.sees(sp.off+row, a.s.FirstKey+i) {
			continue
		}
		keys, values = append(keys, prefix.k[i][kvh*d:(kvh+1)*d]), append(values, prefix.v[i][kvh*vd:(kvh+1)*vd])
	}
	for _, i := range path {
		if sp.pos[i] >= a.s.FirstKey && a.sees(sp.off+row, sp.pos[i]) {
			keys, values = append(keys, r.k[i][kvh*d:(kvh+1)*d]), append(values, r.v[i][kvh*vd:(kvh+1)*vd])
		}
	}
	q := r.q[row][h*d : (h+1)*d]
	p := make([]float64, len(keys))
	for i, k := range keys {
		p[i] = float64(a.s.Scale) * dot(q, k)
	}
	softmax(p)
	out := a.dst.floats(sp.off + row)[h*vd : (h+1)*vd]
	clear(out)
	for i, v := range values {
		for j := range out {
			out[j] += p[i] * v[j]
		}
	}
	if a.s.Gated {
		for j, g := range r.gate[row][h*d : (h+1)*d] {
			out[j] *= sigmoid(g)
		}
	}
}

// sees reports whether a row's mask, if there is one, has a position.
func (a *attention) sees(row, pos int) bool {
	if a.keys.none() {
		return true
	}
	mask := a.keys.ints(row)
	return pos/32 < len(mask) && mask[pos/32]>>(pos%32)&1 != 0
}

func dot(a, b []float64) float64 {
	var s float64
	for i, x := range a {
		s += x * b[i]
	}
	return s
}

// softmax normalises scores in place.
func softmax(p []float64) {
	top := math.Inf(-1)
	for _, x := range p {
		top = max(top, x)
	}
	var sum float64
	for i, x := range p {
		p[i] = math.Exp(x - top)
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
}
