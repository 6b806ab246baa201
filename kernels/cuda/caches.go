//go:build linux && (amd64 || arm64) && !nogpu

package cuda

import (
	"fmt"
	"slices"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

// caches is the memory of an engine's sequences.
type caches struct {
	be   *Backend
	id   uint32
	spec kernels.CacheSpec

	length kernels.Buf // committed length per slot
	pages  block       // page table [Slots, SlotPages]; -1 is unset
	saved  block       // length at which each snapshot was taken; -1 is none

	kv      block // keys and values, layer after layer
	state   block // [Slots, 2, sizes.state] floats
	records block // [Slots, sizes.records] floats
	conv    block // [Slots, sizes.conv] BF16
	snaps   block // [Snapshots, sizes.state] floats
	tails   block // [Snapshots, sizes.tail] BF16
	deltas  block // a deltaLayer for each Delta layer
	moves   block // a commitLayer for each layer

	rings     block // [Slots, sizes.rings] bytes, of Pooled layers
	ringSnaps block // [Snapshots, sizes.rings]
	pooled    block // a pooledLayer for each
	parts     block // what splits of attention leave, FP32

	layers []layerPlace
	sizes  cacheSizes
	dead   bool
}

// layerPlace says where a layer's parts lie: keys and values in bytes of kv, the
// rest in elements within a slot.
type layerPlace struct {
	keys, values     int64
	index            int64
	tokens, rows     int64
	pooled           int // of sizes.pooled
	state            int64
	kRec, uRec, gRec int64
	conv, tail       int64
}

// cacheSizes are the sums over the Delta layers, in elements, and the lengths of
// the rings.
type cacheSizes struct {
	page                       int64 // bytes of a page over all layers
	state, records, conv, tail int64
	ring, convRing             int
	heads                      int   // most value heads of a Delta layer
	rings                      int64 // bytes of a slot's rings
	parts                      int64 // bytes
	deltas                     []deltaLayer
	pooled                     []pooledLayer
	moves                      []commitLayer
}

// checkSpec validates a cache geometry.
func checkSpec(s kernels.CacheSpec, shared int) error {
	if s.Slots <= 0 || s.Pages < 0 || s.SlotPages < 0 || s.Snapshots < 0 {
		return fmt.Errorf("caches: %d slots, %d pages, %d pages per slot, %d snapshots; slots must be positive, the others not negative",
			s.Slots, s.Pages, s.SlotPages, s.Snapshots)
	}
	if s.MaxDraft < 0 || s.MaxDraft >= kernels.WindowTokens {
		return fmt.Errorf("caches: MaxDraft %d; it must be from 0 to %d", s.MaxDraft, kernels.WindowTokens-1)
	}
	for i, l := range s.Layers {
		if err := checkLayer(i, l, ringOf(s), shared); err != nil {
			return err
		}
	}
	return nil
}

func checkLayer(i int, l kernels.LayerSpec, ring, shared int) error {
	if l.RowDim < 0 {
		return fmt.Errorf("caches: layer %d: rows of %d columns", i, l.RowDim)
	}
	switch l.Kind {
	case kernels.Attention:
		if l.KVHeads <= 0 || l.HeadDim <= 0 || l.HeadDim > maxHead || l.ValueDim < 0 || l.ValueDim > maxHead || l.IndexDim < 0 {
			return fmt.Errorf("caches: layer %d: %d KV heads of %d, values of %d; all must be positive, and a head at most %d", i, l.KVHeads, l.HeadDim, l.Values(), maxHead)
		}
	case kernels.Delta:
		if l.KHeads <= 0 || l.VHeads <= 0 || l.VHeads%l.KHeads != 0 || l.KDim <= 0 || l.VDim <= 0 || l.Conv <= 0 {
			return fmt.Errorf("caches: layer %d: %d key heads of %d, %d value heads of %d, %d taps; all must be positive and value heads a multiple of key heads",
				i, l.KHeads, l.KDim, l.VHeads, l.VDim, l.Conv)
		}
		if l.KDim > maxDim || l.VDim > maxDim || l.Conv > maxTaps {
			return fmt.Errorf("caches: layer %d: heads of %d and %d, %d taps; at most %d, %d and %d", i, l.KDim, l.VDim, l.Conv, maxDim, maxDim, maxTaps)
		}
		if need := deltaShared(ring, l.KDim, deltaLeap); need > shared {
			return fmt.Errorf("caches: layer %d: %d records of %d need %d bytes of shared memory; a block of this GPU has %d", i, ring, l.KDim, need, shared)
		}
	case kernels.Pooled:
		return checkPooled(i, l)
	default:
		return fmt.Errorf("caches: layer %d: unknown kind %d", i, l.Kind)
	}
	return nil
}

// channels is the number of channels that the convolution sees: q, k and v.
func channels(l kernels.LayerSpec) int { return 2*l.KHeads*l.KDim + l.VHeads*l.VDim }

// ringOf is the number of records that a slot keeps: the open window and the
// rows of a span that may be dropped.
func ringOf(s kernels.CacheSpec) int { return kernels.WindowTokens + ceil(s.MaxDraft+1, 8)*8 }

// plan lays out the memory of a slot.
func plan(spec kernels.CacheSpec) ([]layerPlace, cacheSizes) {
	z := cacheSizes{ring: ringOf(spec), convRing: spec.MaxDraft + 1}
	for _, l := range spec.Layers {
		if l.Kind == kernels.Delta {
			z.convRing = max(z.convRing, spec.MaxDraft+l.Conv)
		}
	}
	take := func(sum *int64, n int64) int64 {
		at := *sum
		*sum += n
		return at
	}
	places := make([]layerPlace, len(spec.Layers))
	var kv int64
	for i, l := range spec.Layers {
		p := &places[i]
		side := kernels.PageTokens * (2*int64(l.RowDim) + 4*int64(flag(l.Tokens)))
		p.tokens = take(&kv, side*int64(spec.Pages))
		p.rows = p.tokens + kernels.PageTokens*4*int64(flag(l.Tokens))*int64(spec.Pages)
		z.page += side
		move := commitLayer{tokens: uint64(p.tokens) / 2, rows: uint64(p.rows) / 2, rowDim: int32(l.RowDim), keeps: flag(l.Tokens)}
		if l.Kind == kernels.Attention {
			keys := kernels.PageTokens * int64(l.KVHeads) * int64(l.HeadDim) * 2
			values := kernels.PageTokens * int64(l.KVHeads) * int64(l.Values()) * 2
			index := kernels.PageTokens * int64(l.IndexDim) * 2
			z.page += keys + values + index
			z.parts = max(z.parts, partBytes(spec, l))
			p.keys, p.values = take(&kv, keys*int64(spec.Pages)), take(&kv, values*int64(spec.Pages))
			p.index = take(&kv, index*int64(spec.Pages))
			move.keys, move.values, move.index = uint64(p.keys)/2, uint64(p.values)/2, uint64(p.index)/2
			move.kvHeads, move.dim, move.vdim, move.indexDim = int32(l.KVHeads), int32(l.HeadDim), int32(l.Values()), int32(l.IndexDim)
			z.moves = append(z.moves, move)
			continue
		}
		if l.Kind == kernels.Pooled {
			bytes := 2 * int64(l.PageGroups()) * int64(l.HeadDim+l.IndexDim)
			z.page += bytes
			p.pooled = len(z.pooled)
			z.pooled = append(z.pooled, z.place(l, spec, take(&kv, bytes*int64(spec.Pages))))
			z.moves = append(z.moves, move)
			continue
		}
		ring, c := int64(z.ring), int64(channels(l))
		floats := int64(l.VHeads) * int64(l.KDim) * int64(l.VDim)
		p.state = take(&z.state, floats)
		p.kRec = take(&z.records, ring*int64(l.KHeads)*int64(l.KDim))
		p.uRec = take(&z.records, ring*int64(l.VHeads)*int64(l.VDim))
		p.gRec = take(&z.records, ring*int64(l.VHeads))
		p.conv = take(&z.conv, int64(z.convRing)*c)
		p.tail = take(&z.tail, int64(l.Conv-1)*c)
		z.deltas = append(z.deltas, deltaLayer{
			state: uint64(p.state), floats: uint64(floats), conv: uint64(p.conv), tail: uint64(p.tail),
			channels: int32(c), tapsN: int32(l.Conv),
		})
		z.heads = max(z.heads, l.VHeads)
		move.state, move.kRec, move.uRec, move.gRec, move.conv = uint64(p.state), uint64(p.kRec), uint64(p.uRec), uint64(p.gRec), uint64(p.conv)
		move.kHeads, move.vHeads, move.kDim, move.vDim, move.channels = int32(l.KHeads), int32(l.VHeads), int32(l.KDim), int32(l.VDim), int32(c)
		z.moves = append(z.moves, move)
	}
	return places, z
}

// mostParts bounds the memory of what splits of attention leave.
const mostParts = 256 << 20

// partBytes is the room for the parts of a layer's splits, of 16 rows each.
func partBytes(spec kernels.CacheSpec, l kernels.LayerSpec) int64 {
	const shortest = 128 // keys of a split near the start, until the 20th
	splits := int64(spec.Pages)*kernels.PageTokens/512 + 20*int64(spec.Slots)
	splits = min(splits, int64(spec.Pages)*kernels.PageTokens/shortest+int64(spec.Slots))
	return min(mostParts, splits*int64(l.KVHeads)*16*int64(max(64, l.HeadDim)+2)*4)
}

// Caches allocates the caches of an engine, or nothing: a refusal for lack of
// memory is kernels.ErrOutOfMemory.
func (be *Backend) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	if err := be.usable("caches"); err != nil {
		return nil, err
	}
	if err := checkSpec(spec, be.sharedLimit()); err != nil {
		return nil, err
	}
	spec.Layers = slices.Clone(spec.Layers)
	c := &caches{be: be, id: handles.Add(1), spec: spec}
	c.layers, c.sizes = plan(spec)
	if err := c.allocate(); err != nil {
		be.q.settle(be.release(c.blocks()...))
		be.Free(c.length)
		return nil, fmt.Errorf("caches: %w", err)
	}
	be.caches[c.id] = c
	return c, nil
}

func (c *caches) allocate() error {
	slots, snaps, z := int64(c.spec.Slots), int64(c.spec.Snapshots), c.sizes
	var err error
	if c.length, err = c.be.newBuffer(kernels.Tables, kernels.I32, c.spec.Slots, 1); err != nil {
		return err
	}
	const one, move, pooled = int64(unsafe.Sizeof(deltaLayer{})), int64(unsafe.Sizeof(commitLayer{})), int64(unsafe.Sizeof(pooledLayer{}))
	for _, b := range []struct {
		dst     *block
		purpose kernels.Purpose
		bytes   int64
		fill    byte
	}{
		{&c.pages, kernels.Tables, 4 * slots * int64(c.spec.SlotPages), 0xff},
		{&c.saved, kernels.Tables, 4 * snaps, 0xff},
		{&c.deltas, kernels.Tables, one * int64(len(z.deltas)), 0},
		{&c.moves, kernels.Tables, move * int64(len(z.moves)), 0},
		{&c.pooled, kernels.Tables, pooled * int64(len(z.pooled)), 0},
		{&c.rings, kernels.State, slots * z.rings, 0},
		{&c.ringSnaps, kernels.State, snaps * z.rings, 0},
		{&c.kv, kernels.KV, z.page * int64(c.spec.Pages), 0},
		{&c.state, kernels.State, 4 * slots * 2 * z.state, 0},
		{&c.records, kernels.State, 4 * slots * z.records, 0},
		{&c.conv, kernels.State, 2 * slots * z.conv, 0},
		{&c.snaps, kernels.State, 4 * snaps * z.state, 0},
		{&c.tails, kernels.State, 2 * snaps * z.tail, 0},
		{&c.parts, kernels.Activations, z.parts, 0},
	} {
		if *b.dst, err = c.be.zeroed(b.purpose, b.bytes, b.fill); err != nil {
			return err
		}
	}
	if err := upload(c.be.q, c.moves, z.moves); err != nil {
		return err
	}
	if err := upload(c.be.q, c.pooled, z.pooled); err != nil {
		return err
	}
	return upload(c.be.q, c.deltas, z.deltas)
}

// upload copies a table of structs to its block.
func upload[T any](q *queue, b block, table []T) error {
	if len(table) == 0 {
		return nil
	}
	return q.upload(b.ptr, b.bytes, func(dst []byte) error {
		copy(dst, unsafe.Slice((*byte)(unsafe.Pointer(&table[0])), b.bytes))
		return nil
	})
}

func (c *caches) blocks() []block {
	return []block{c.pages, c.saved, c.deltas, c.moves, c.kv, c.state, c.records, c.conv, c.snaps, c.tails, c.rings, c.ringSnaps, c.pooled, c.parts}
}

// ID returns the number that layer handles carry.
func (c *caches) ID() uint32 { return c.id }

// Layer returns the handle of layer i.
func (c *caches) Layer(i int) kernels.Layer { return kernels.Layer{Caches: c.id, Index: int32(i)} }

// Spec returns what the caches were made for.
func (c *caches) Spec() kernels.CacheSpec { return c.spec }

// Len is the table of committed lengths.
func (c *caches) Len() kernels.Buf { return c.length }

// Bytes returns the memory behind one page, one slot (both states, records,
// convolution inputs) and one snapshot. Tables are not in it.
func (c *caches) Bytes() (page, slot, snapshot int64) {
	z := c.sizes
	return z.page, 4*(2*z.state+z.records) + 2*z.conv + z.rings, 4*z.state + 2*z.tail + z.rings
}

// Close waits for the queue and frees the memory.
func (c *caches) Close() error {
	if c.dead || c.be.closed {
		return nil
	}
	if err := c.be.usable("close caches"); err != nil {
		return err
	}
	c.dead = true
	delete(c.be.caches, c.id)
	c.be.Free(c.length)
	return c.be.release(c.blocks()...)
}

// caches resolves caches by handle number.
func (q *queue) caches(id uint32) *caches {
	c, ok := q.be.caches[id]
	if !ok {
		q.fail("caches %d are not of this backend, or closed", id)
		return nil
	}
	if q.recording != nil {
		q.recording.bufs[c.length.ID] = true // dies with the caches
	}
	return c
}

// layer resolves a layer handle of a kind.
func (q *queue) layer(l kernels.Layer, k kernels.LayerKind) (*caches, kernels.LayerSpec) {
	c := q.caches(l.Caches)
	if q.bad != nil {
		return nil, kernels.LayerSpec{}
	}
	if l.Index < 0 || int(l.Index) >= len(c.spec.Layers) {
		q.fail("layer %d of %d", l.Index, len(c.spec.Layers))
		return nil, kernels.LayerSpec{}
	}
	g := c.spec.Layers[l.Index]
	if g.Kind != k {
		q.fail("layer %d is of kind %d; it must be of kind %d", l.Index, g.Kind, k)
	}
	return c, g
}
