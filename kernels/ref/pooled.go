package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// pooledStore holds one Pooled layer: by slot the window's keys and what is pooled, of
// all positions, and the groups of rows that are not in the place of their position; by
// page the groups' keys.
type pooledStore struct {
	spec               kernels.LayerSpec
	window, pool       int // positions of which a slot has a key, and what is pooled; 0: none
	slots, snaps       []pooledSlot
	groups             []float64 // of a tensor [Pages*PageGroups, HeadDim+IndexDim]
	perPage, groupCols int
}

// pooledSlot is a slot's memory in one Pooled layer.
type pooledSlot struct {
	keys, raw []float64 // by position: HeadDim and PoolCols
	pending   []float64 // [MaxDraft+1, HeadDim+IndexDim]; a snapshot has none
}

func newPooledStore(l kernels.LayerSpec, spec kernels.CacheSpec) *pooledStore {
	p := &pooledStore{spec: l, perPage: l.PageGroups(), groupCols: l.HeadDim + l.IndexDim}
	if l.Window > 0 {
		p.window = spec.SlotPages * kernels.PageTokens
	}
	if l.PoolCols() > 0 {
		p.pool = spec.SlotPages * kernels.PageTokens
	}
	slot := func() pooledSlot {
		var s pooledSlot
		if p.window > 0 {
			s.keys = floats(newFloats(p.window, l.HeadDim))
		}
		if p.pool > 0 {
			s.raw = floats(newFloats(p.pool, l.PoolCols()))
		}
		return s
	}
	for range spec.Slots {
		s := slot()
		if l.Ratio > 0 {
			s.pending = floats(newFloats(spec.MaxDraft+1, p.groupCols))
		}
		p.slots = append(p.slots, s)
	}
	for range spec.Snapshots {
		p.snaps = append(p.snaps, slot())
	}
	if n := spec.Pages * p.perPage; n > 0 {
		p.groups = floats(newFloats(n, p.groupCols))
	}
	return p
}

// bytes returns the memory behind a page, a slot and a snapshot.
func (p *pooledStore) bytes() (page, slot, snapshot int64) {
	s := p.slots[0]
	snapshot = 8 * int64(len(s.keys)+len(s.raw))
	return 8 * int64(p.perPage*p.groupCols), snapshot + 8*int64(len(s.pending)), snapshot
}

// copyRows copies what is kept by position of one slot or snapshot to another.
func (s pooledSlot) copyRows(from pooledSlot) {
	copy(s.keys, from.keys)
	copy(s.raw, from.raw)
}

// key returns the place of the window's key at a position.
func (p *pooledStore) key(slot, pos int) []float64 {
	d := p.spec.HeadDim
	return p.slots[slot].keys[pos*d:][:d]
}

// raw returns the place of what a position adds to its groups.
func (p *pooledStore) raw(slot, pos int) []float64 {
	n := p.spec.PoolCols()
	return p.slots[slot].raw[pos*n:][:n]
}

// group returns the place of a group in the pages of a slot.
func (c *caches) group(p *pooledStore, slot, group int) ([]float64, error) {
	page, place := p.spec.GroupPlace(group)
	at, err := c.page(slot, page*kernels.PageTokens)
	if err != nil {
		return nil, err
	}
	return p.groups[(int(at)*p.perPage+place)*p.groupCols:][:p.groupCols], nil
}

// groupOf returns the place of the group that row i of a span completes: in the pages
// if the row is in the place of its position, else among the pending ones; nil where
// it completes none.
func (c *caches) groupOf(p *pooledStore, sp *span, i int) ([]float64, error) {
	switch {
	case (sp.pos[i]+1)%p.spec.Ratio != 0:
		return nil, nil
	case sp.pos[i] == sp.start+i:
		return c.group(p, sp.slot, sp.pos[i]/p.spec.Ratio)
	case i > c.spec.MaxDraft:
		return nil, fmt.Errorf("row %d of a tree; at most MaxDraft+1 = %d", i, c.spec.MaxDraft+1)
	}
	return p.slots[sp.slot].pending[i*p.groupCols:][:p.groupCols], nil
}

// groupsOf returns the groups that are complete at row i of a span.
func (c *caches) groupsOf(p *pooledStore, sp *span, i int) ([][]float64, error) {
	var out [][]float64
	for g := range p.spec.Groups(sp.start) {
		at, err := c.group(p, sp.slot, g)
		if err != nil {
			return nil, err
		}
		out = append(out, at)
	}
	for _, j := range sp.path(i) {
		at, err := c.groupOf(p, sp, j)
		if err != nil {
			return nil, err
		}
		if at != nil {
			out = append(out, at)
		}
	}
	return out, nil
}

// movePooled brings what a Pooled layer holds of a path to the places of its
// positions.
func (c *caches) movePooled(p *pooledStore, sp *span, path []int) error {
	for j, i := range path {
		if i == j {
			continue
		}
		if p.window > 0 {
			copy(p.key(sp.slot, sp.start+j), p.key(sp.slot, sp.start+i))
		}
		if p.pool > 0 {
			copy(p.raw(sp.slot, sp.start+j), p.raw(sp.slot, sp.start+i))
		}
		if p.spec.Ratio == 0 || (sp.start+j+1)%p.spec.Ratio != 0 {
			continue
		}
		to, err := c.group(p, sp.slot, (sp.start+j)/p.spec.Ratio)
		if err != nil {
			return err
		}
		copy(to, p.slots[sp.slot].pending[i*p.groupCols:])
	}
	return nil
}

// pooledOp is an operation on a Pooled layer over the spans of a batch.
type pooledOp struct {
	c *caches
	p *pooledStore
	t *tables
}

func (o *operands) pooled(l kernels.Layer, b *kernels.Batch) (pooledOp, kernels.LayerSpec) {
	c, geo := o.layer(l, kernels.Pooled)
	if o.err != nil {
		return pooledOp{}, geo
	}
	return pooledOp{c: c, p: c.pooled[l.Index], t: o.batch(b, "batch")}, geo
}

// spans calls f for each span that is not idle.
func (o *pooledOp) spans(f func(sp *span) error) error {
	spans, err := o.t.active(o.c.spec.Slots)
	if err != nil {
		return err
	}
	for i := range spans {
		if end, most := spans[i].start+spans[i].n, o.c.spec.SlotPages*kernels.PageTokens; end > most {
			return fmt.Errorf("span %d: it ends at position %d; a slot has %d", spans[i].index, end, most)
		}
		if err := f(&spans[i]); err != nil {
			return fmt.Errorf("span %d: %w", spans[i].index, err)
		}
	}
	return nil
}

// Pool pools the keys of groups.
func (r *recorder) Pool(dst, proj kernels.Buf, l kernels.Layer, b *kernels.Batch, s *kernels.PoolSpec) {
	spec := *s
	r.add("pool", func() (func() error, error) {
		o := operands{be: r.be}
		op, geo := o.pooled(l, b)
		if o.err == nil {
			o.err = spec.Check(geo)
		}
		if o.err != nil {
			return nil, o.err
		}
		p := &pooling{pooledOp: op, index: spec.Index, dim: spec.Dim(geo), n: geo.Reach() / geo.Ratio}
		p.dst = o.kind(dst, "dst", kernels.BF16, b.Rows, p.dim)
		p.proj = o.kind(proj, "proj", kernels.F32, b.Rows, 2*p.n*p.dim)
		if !spec.Bias.None() {
			p.bias = o.weight(spec.Bias, kernels.Table, "bias")
			if o.err == nil && (p.bias.rows != geo.Ratio || p.bias.cols != p.n*p.dim) {
				o.fail("bias is [%d, %d]; it must be [%d, %d]", p.bias.rows, p.bias.cols, geo.Ratio, p.n*p.dim)
			}
		}
		return func() error { return p.spans(p.span) }, o.err
	})
}

// pooling is a resolved Pool.
type pooling struct {
	pooledOp
	dst, proj view
	bias      *weight // nil: none
	index     bool
	dim, n    int // n: keys of a position
}

// part returns what of a raw row is this operation's.
func (p *pooling) part(raw []float64) []float64 {
	width := 2 * p.n * p.dim
	if p.index {
		return raw[len(raw)-width:]
	}
	return raw[:width]
}

func (p *pooling) span(sp *span) error {
	for i := range sp.n {
		row := p.dst.floats(sp.off + i)
		clear(row)
		if (sp.pos[i]+1)%p.p.spec.Ratio == 0 {
			p.pool(row, sp, i)
		}
	}
	for i := range sp.n {
		copy(p.part(p.p.raw(sp.slot, sp.start+i)), p.proj.floats(sp.off+i))
	}
	return nil
}

// pool averages the keys of the group that row i completes.
func (p *pooling) pool(dst []float64, sp *span, i int) {
	ratio, path := p.p.spec.Ratio, sp.path(i)
	first := sp.pos[i] + 1 - ratio
	for c := range p.dim {
		var keys, gates []float64
		for pos := max(0, first-(p.n-1)*ratio); pos <= sp.pos[i]; pos++ {
			raw := p.row(sp, path, pos)
			at := c
			if p.n == 2 && pos >= first {
				at += p.dim
			}
			gate := raw[p.n*p.dim+at]
			if p.bias != nil {
				gate += p.bias.row(pos % ratio)[at]
			}
			keys, gates = append(keys, raw[at]), append(gates, gate)
		}
		softmax(gates)
		for j, k := range keys {
			dst[c] += gates[j] * k
		}
	}
}

// row returns the projection at a position of a path.
func (p *pooling) row(sp *span, path []int, pos int) []float64 {
	if pos >= sp.start {
		return p.proj.floats(sp.off + path[pos-sp.start])
	}
	return p.part(p.p.raw(sp.slot, pos))
}

// Keep stores the keys of groups.
func (r *recorder) Keep(src kernels.Buf, l kernels.Layer, b *kernels.Batch, index bool) {
	r.add("keep", func() (func() error, error) {
		o := operands{be: r.be}
		op, geo := o.pooled(l, b)
		if o.err != nil {
			return nil, o.err
		}
		from, to := 0, geo.HeadDim
		if index {
			from, to = to, to+geo.IndexDim
		}
		if geo.Ratio == 0 || from == to {
			o.fail("the layer has groups of %d, index keys of %d", geo.Ratio, geo.IndexDim)
		}
		s := o.kind(src, "src", kernels.BF16, b.Rows, to-from)
		return func() error {
			return op.spans(func(sp *span) error {
				for i := range sp.n {
					at, err := op.c.groupOf(op.p, sp, i)
					if err != nil {
						return err
					}
					if at != nil {
						copy(at[from:to], s.floats(sp.off+i))
					}
				}
				return nil
			})
		}, o.err
	})
}

// AttendPooled runs attention over a window and groups as one softmax.
func (r *recorder) AttendPooled(dst, q, kv kernels.Buf, l, groups kernels.Layer, b *kernels.Batch, s *kernels.PooledSpec) {
	spec := *s
	r.add("attend pooled", func() (func() error, error) {
		o := operands{be: r.be}
		op, geo := o.pooled(l, b)
		a := &pooledAttention{pooledOp: op, s: spec}
		of := geo
		if spec.Groups {
			var other pooledOp
			if other, of = o.pooled(groups, b); o.err == nil {
				a.groups = other.p
			}
		}
		if o.err == nil {
			o.err = spec.Check(geo, of)
		}
		if o.err != nil {
			return nil, o.err
		}
		a.dst = o.kind(dst, "dst", kernels.BF16, b.Rows, spec.Heads*spec.Dim)
		a.q = o.kind(q, "q", kernels.BF16, b.Rows, spec.Heads*spec.Dim)
		a.kv = o.kind(kv, "kv", kernels.BF16, b.Rows, spec.Dim)
		if !spec.Sink.None() {
			a.sink = o.vector(spec.Sink, spec.Heads, "sink")
		}
		if !spec.Chosen.None() {
			a.chosen = o.kind(spec.Chosen, "chosen", kernels.I32, b.Rows, -1)
		}
		return func() error { return a.spans(func(sp *span) error { return a.span(r.be, sp) }) }, o.err
	})
}

// pooledAttention is a resolved AttendPooled.
type pooledAttention struct {
	pooledOp
	groups             *pooledStore // nil: the window alone
	s                  kernels.PooledSpec
	dst, q, kv, chosen view
	sink               []float64
}

func (a *pooledAttention) span(be *Backend, sp *span) error {
	for i := range sp.n {
		keys, err := a.keys(sp, i)
		if err != nil {
			return err
		}
		parallel(a.s.Heads, func(h int) { a.head(sp.off+i, h, keys) })
		be.work.AttendRows++
		be.work.KVTokens += uint64(len(keys))
	}
	for i := range sp.n {
		if !a.s.Block {
			copy(a.p.key(sp.slot, sp.start+i), a.kv.floats(sp.off+i))
		}
	}
	return nil
}

// keys returns the keys that row i of a span sees.
func (a *pooledAttention) keys(sp *span, i int) ([][]float64, error) {
	var keys [][]float64
	if a.s.Block {
		for pos := max(a.s.FirstKey, sp.start-a.p.spec.Window); pos < sp.start; pos++ {
			keys = append(keys, a.p.key(sp.slot, pos))
		}
		for j := range sp.n {
			keys = append(keys, a.kv.floats(sp.off+j))
		}
		return keys, nil
	}
	path := sp.path(i)
	for pos := max(a.s.FirstKey, sp.pos[i]-a.p.spec.Window+1); pos <= sp.pos[i]; pos++ {
		if pos >= sp.start {
			keys = append(keys, a.kv.floats(sp.off+path[pos-sp.start]))
		} else {
			keys = append(keys, a.p.key(sp.slot, pos))
		}
	}
	if a.groups == nil {
		return keys, nil
	}
	groups, err := a.c.groupsOf(a.groups, sp, i)
	for g, key := range groups {
		if a.chosen.none() || inMask(a.chosen.ints(sp.off+i), g) {
			keys = append(keys, key[:a.s.Dim])
		}
	}
	return keys, err
}

// inMask reports whether a mask has bit i.
func inMask(mask []int32, i int) bool { return i/32 < len(mask) && mask[i/32]>>(i%32)&1 != 0 }

// head computes one head of one row.
func (a *pooledAttention) head(row, h int, keys [][]float64) {
	d := a.s.Dim
	q, out := a.q.floats(row)[h*d:(h+1)*d], a.dst.floats(row)[h*d:(h+1)*d]
	p := make([]float64, len(keys), len(keys)+1)
	for i, k := range keys {
		p[i] = float64(a.s.Scale) * dot(q, k)
	}
	if a.sink != nil {
		p = append(p, a.sink[h])
	}
	softmax(p)
	sum := make([]float64, d)
	for i, k := range keys {
		for j := range sum {
			sum[j] += p[i] * k[j]
		}
	}
	copy(out, sum)
}
