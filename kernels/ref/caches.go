package ref

import (
	"fmt"

	"exacta.dev/exacta/kernels"
)

// caches is the memory of an engine's sequences.
type caches struct {
	be     *Backend
	id     uint32
	spec   kernels.CacheSpec
	lenBuf kernels.Buf
	length view      // committed length per slot
	pages  [][]int32 // page table per slot; -1 is unset
	attn   []*kvStore
	delta  []*deltaStore
	side   []*sideStore
	pooled []*pooledStore
	// saved is the committed length at which a snapshot was taken; -1 is
	// none.
	saved []int
	held  kernels.Memory
	dead  bool
}

// kvStore holds one attention layer: rows of KVHeads*HeadDim by page and
// position within it.
type kvStore struct {
	k, v     []float64 // of tensors [Pages*PageTokens, cols] and [.., vCols]
	index    []float64 // of one [.., indexDim]
	indexDim int
	cols     int // KVHeads*HeadDim
	vCols    int // KVHeads*Values
}

func newKVStore(l kernels.LayerSpec, pages int) *kvStore {
	s := &kvStore{cols: l.KVHeads * l.HeadDim, vCols: l.KVHeads * l.Values()}
	if pages > 0 {
		s.k, s.v = floats(newFloats(pages*kernels.PageTokens, s.cols)), floats(newFloats(pages*kernels.PageTokens, s.vCols))
	}
	if s.indexDim = l.IndexDim; pages > 0 && s.indexDim > 0 {
		s.index = floats(newFloats(pages*kernels.PageTokens, s.indexDim))
	}
	return s
}

// indexKey returns the row of the index at a position.
func (s *kvStore) indexKey(page int32, pos int) []float64 {
	return s.index[place(page, pos)*s.indexDim:][:s.indexDim]
}

// key and value return the rows at a position.
func (s *kvStore) key(page int32, pos int) []float64 { return s.k[place(page, pos)*s.cols:][:s.cols] }

func (s *kvStore) value(page int32, pos int) []float64 {
	return s.v[place(page, pos)*s.vCols:][:s.vCols]
}

// checkSpec validates a cache geometry.
func checkSpec(s kernels.CacheSpec) error {
	if s.Slots <= 0 || s.Pages < 0 || s.SlotPages < 0 || s.Snapshots < 0 {
		return fmt.Errorf("caches: %d slots, %d pages, %d pages per slot, %d snapshots; slots must be positive, the others not negative",
			s.Slots, s.Pages, s.SlotPages, s.Snapshots)
	}
	if s.MaxDraft < 0 || s.MaxDraft >= kernels.WindowTokens {
		return fmt.Errorf("caches: MaxDraft %d; it must be from 0 to %d", s.MaxDraft, kernels.WindowTokens-1)
	}
	for i, l := range s.Layers {
		if l.RowDim < 0 {
			return fmt.Errorf("caches: layer %d: rows of %d", i, l.RowDim)
		}
		switch l.Kind {
		case kernels.Attention:
			if l.KVHeads <= 0 || l.HeadDim <= 0 || l.ValueDim < 0 {
				return fmt.Errorf("caches: layer %d: %d KV heads of %d, values of %d; all must be positive", i, l.KVHeads, l.HeadDim, l.Values())
			}
		case kernels.Delta:
			if l.KHeads <= 0 || l.VHeads <= 0 || l.VHeads%l.KHeads != 0 || l.KDim <= 0 || l.VDim <= 0 || l.Conv <= 0 {
				return fmt.Errorf("caches: layer %d: %d key heads of %d, %d value heads of %d, %d taps; all must be positive and value heads a multiple of key heads",
					i, l.KHeads, l.KDim, l.VHeads, l.VDim, l.Conv)
			}
		case kernels.Pooled:
			if err := l.CheckPooled(); err != nil {
				return fmt.Errorf("caches: layer %d: %w", i, err)
			}
		default:
			return fmt.Errorf("caches: layer %d: unknown kind %d", i, l.Kind)
		}
	}
	return nil
}

func newCaches(be *Backend, spec kernels.CacheSpec) *caches {
	spec.Layers = append([]kernels.LayerSpec(nil), spec.Layers...)
	c := &caches{be: be, id: handles.Add(1), spec: spec, saved: make([]int, spec.Snapshots)}
	c.lenBuf = be.adopt(newBuffer(kernels.Tables, kernels.I32, spec.Slots, 1))
	b := be.bufs[c.lenBuf.ID]
	c.length = view{b: b, kind: kernels.I32, rows: b.rows, cols: 1}
	for i := range c.saved {
		c.saved[i] = -1
	}
	for range spec.Slots {
		t := make([]int32, spec.SlotPages)
		for i := range t {
			t[i] = -1
		}
		c.pages = append(c.pages, t)
	}
	for _, l := range spec.Layers {
		var kv *kvStore
		var d *deltaStore
		var p *pooledStore
		switch l.Kind {
		case kernels.Attention:
			kv = newKVStore(l, spec.Pages)
		case kernels.Delta:
			d = newDeltaStore(l, spec)
		case kernels.Pooled:
			p = newPooledStore(l, spec)
			_, slot, snapshot := p.bytes()
			c.held[kernels.State] += slot*int64(spec.Slots) + snapshot*int64(spec.Snapshots)
		}
		c.attn, c.delta, c.pooled = append(c.attn, kv), append(c.delta, d), append(c.pooled, p)
		c.side = append(c.side, newSideStore(l, spec.Pages))
	}
	page, _, _ := c.Bytes()
	c.held[kernels.KV] = page * int64(spec.Pages)
	c.held[kernels.Tables] = 4 * int64(spec.Slots) * int64(spec.SlotPages)
	for _, d := range c.delta {
		if d != nil {
			c.held[kernels.State] += d.bytes()
		}
	}
	for p, n := range c.held {
		be.mem[p] += n
	}
	return c
}

// ID returns the number that layer handles carry.
func (c *caches) ID() uint32 { return c.id }

// Layer returns the handle of layer i.
func (c *caches) Layer(i int) kernels.Layer { return kernels.Layer{Caches: c.id, Index: int32(i)} }

// Spec returns what the caches were made for.
func (c *caches) Spec() kernels.CacheSpec { return c.spec }

// Len is the table of committed lengths.
func (c *caches) Len() kernels.Buf { return c.lenBuf }

// Bytes returns the memory behind one page, one slot (its states, tentative
// ones included, and its page table row) and one snapshot.
func (c *caches) Bytes() (page, slot, snapshot int64) {
	slot = 4 * int64(1+c.spec.SlotPages)
	for i, l := range c.spec.Layers {
		page += 8 * kernels.PageTokens * int64(l.RowDim)
		if l.Tokens {
			page += 4 * kernels.PageTokens
		}
		if l.Kind == kernels.Attention {
			page += 8 * kernels.PageTokens * int64(l.KVHeads*(l.HeadDim+l.Values())+l.IndexDim)
			continue
		}
		if p := c.pooled[i]; p != nil {
			a, b, d := p.bytes()
			page, slot, snapshot = page+a, slot+b, snapshot+d
			continue
		}
		one := c.delta[i].stateBytes()
		slot += one * int64(2+c.spec.MaxDraft)
		snapshot += one
	}
	return page, slot, snapshot
}

// Close runs what is recorded and frees the memory.
func (c *caches) Close() error {
	if c.dead || c.be.closed {
		return nil
	}
	c.be.Free(c.lenBuf)
	c.dead = true
	delete(c.be.caches, c.id)
	for p, n := range c.held {
		c.be.mem[p] -= n
	}
	return nil
}

// find resolves caches by handle number.
func (o *operands) find(id uint32) *caches {
	c, ok := o.be.caches[id]
	if !ok {
		o.fail("caches %d are not of this backend, or closed", id)
		return nil
	}
	// The length table stands for the whole in the check for freed memory.
	o.be.touched = append(o.be.touched, c.length.b)
	return c
}

// layer resolves a layer handle of a kind.
func (o *operands) layer(l kernels.Layer, kind kernels.LayerKind) (*caches, kernels.LayerSpec) {
	c := o.find(l.Caches)
	if c == nil {
		return nil, kernels.LayerSpec{}
	}
	if l.Index < 0 || int(l.Index) >= len(c.spec.Layers) {
		o.fail("layer %d of %d", l.Index, len(c.spec.Layers))
		return nil, kernels.LayerSpec{}
	}
	s := c.spec.Layers[l.Index]
	if s.Kind != kind {
		o.fail("layer %d is of kind %d; this operation needs kind %d", l.Index, s.Kind, kind)
	}
	return c, s
}

// page returns the page of a slot that holds a position.
func (c *caches) page(slot, pos int) (int32, error) {
	i := pos / kernels.PageTokens
	if i >= len(c.pages[slot]) {
		return 0, fmt.Errorf("slot %d: position %d is beyond its %d pages", slot, pos, len(c.pages[slot]))
	}
	p := c.pages[slot][i]
	if p < 0 {
		return 0, fmt.Errorf("slot %d: no page is set for position %d", slot, pos)
	}
	return p, nil
}
