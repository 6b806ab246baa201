package cpu

import (
	"fmt"
	"unsafe"

	"exacta.dev/exacta/kernels"
)

const (
	page   = kernels.PageTokens
	window = kernels.WindowTokens
	split  = kernels.SplitTokens
	// convTaps is the number of taps of the convolution primitive; shorter
	// kernels are padded with zeros in front.
	convTaps = 4
	// convTail is the number of earlier inputs that a convolution needs.
	convTail = convTaps - 1
	lanes    = 16
	// never is a position that no row has.
	never = -1 << 30
)

// caches is the memory of the sequences of an engine.
type caches struct {
	b      *Backend
	id     uint32
	spec   kernels.CacheSpec
	layers []*layer
	short  int // longest span whose convolution inputs go to the ring
	ring   int // positions of the ring, a power of two

	pages     []int32 // [Slots, SlotPages]; -1 is a hole
	pageMem   block
	lens      kernels.Buf
	length    view
	slots     []slotState
	snapshots []bool // saved at least once
	closed    bool
}

// slotState is what a slot remembers beside its tables.
type slotState struct {
	bank int // of the committed state: 0 or 1
	// The convolution inputs at tailAt-3 .. tailAt-1 stand in tail bank
	// tailBank instead of the ring: the last long span ended there.
	tailAt, tailBank int
}

// layer is the cache of one layer.
type layer struct {
	spec kernels.LayerSpec
	mem  block
	snap block
	base unsafe.Pointer

	// Attention, in BF16 elements: keys [Pages][KVHeads][HeadDim/2][4][16][2],
	// values [Pages][KVHeads][panels][32][4][16][2].
	keySize, valueSize, panels int
	values                     unsafe.Pointer
	odd                        []bool // [Pages, KVHeads]: holds a value that is not finite
	pool                       *pooledCache
	index                      *layer      // keys by which Select chooses, one head without values; nil: none
	blocks                     *blockCache // of an index of blocks; nil: none

	side side // kept of each position, whatever the kind

	// Delta, in bytes: per slot two banks, then the convolution inputs.
	bank, slot, snapshot               int
	vdim                               int // VDim rounded up to whole vectors
	cols                               int // places of records: a window, and drafts behind the last of its rows
	keysAt, recordsAt, decayAt, convAt int
	channels                           int
}

// Caches allocates the caches of an engine. The error names the layer or the
// number that does not fit.
func (b *Backend) Caches(spec kernels.CacheSpec) (kernels.Caches, error) {
	if b.closed {
		return nil, errClosed
	}
	if err := checkSpec(spec); err != nil {
		return nil, fmt.Errorf("cpu: caches: %w", err)
	}
	b.mem.open()
	defer b.mem.shut()
	c := &caches{b: b, id: uint32(len(b.caches)), spec: spec, short: max(spec.MaxDraft+1, convTail), ring: 1}
	for c.ring < c.short+convTail {
		c.ring *= 2
	}
	if err := c.allocate(); err != nil {
		_ = c.release() // the allocation's error is the one to report
		return nil, err
	}
	b.caches = append(b.caches, c)
	for _, w := range b.pool.workers {
		if n := spec.Slots - len(w.seen); n > 0 {
			w.seen = append(w.seen, make([]uint64, n)...)
		}
	}
	return c, nil
}

func checkSpec(s kernels.CacheSpec) error {
	attention := false
	for i, l := range s.Layers {
		if err := checkSide(l, s.Pages); err != nil {
			return fmt.Errorf("layer %d: %w", i, err)
		}
		switch l.Kind {
		case kernels.Attention:
			attention = true
			if l.KVHeads <= 0 || l.HeadDim <= 0 || l.HeadDim%2 != 0 || l.ValueDim < 0 || l.IndexDim < 0 || l.IndexDim%2 != 0 || l.IndexRatio < 0 {
				return fmt.Errorf("layer %d: attention with %d KV heads of %d; both positive, the dimension even", i, l.KVHeads, l.HeadDim)
			}
		case kernels.Delta:
			if l.KHeads <= 0 || l.VHeads <= 0 || l.VHeads%l.KHeads != 0 || l.KDim <= 0 || l.VDim <= 0 {
				return fmt.Errorf("layer %d: delta with %d key heads of %d and %d value heads of %d; value heads must be a multiple of key heads", i, l.KHeads, l.KDim, l.VHeads, l.VDim)
			}
			if l.Conv < 1 || l.Conv > convTaps {
				return fmt.Errorf("layer %d: a convolution of %d taps; this backend has 1 to %d", i, l.Conv, convTaps)
			}
		case kernels.Pooled:
			attention = attention || l.Ratio > 0
			if err := l.CheckPooled(); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
		default:
			return fmt.Errorf("layer %d: unknown kind %d", i, l.Kind)
		}
	}
	switch {
	case s.Slots <= 0 || s.SlotPages <= 0:
		return fmt.Errorf("%d slots of %d pages; both must be positive", s.Slots, s.SlotPages)
	case attention && s.Pages <= 0:
		return fmt.Errorf("%d pages; attention needs at least one", s.Pages)
	case s.MaxDraft < 0 || s.MaxDraft >= window:
		return fmt.Errorf("max draft %d; want 0 to %d", s.MaxDraft, window-1)
	case s.Snapshots < 0:
		return fmt.Errorf("%d snapshots", s.Snapshots)
	}
	return nil
}

func (c *caches) allocate() (err error) {
	n := c.spec.Slots * c.spec.SlotPages
	if c.pageMem, err = c.b.mem.alloc(kernels.Tables, 4*n); err != nil {
		return err
	}
	c.pages = unsafe.Slice((*int32)(c.pageMem.ptr()), n)
	for i := range c.pages {
		c.pages[i] = -1
	}
	if c.lens, err = c.b.Alloc(kernels.Tables, kernels.I32, c.spec.Slots, 1); err != nil {
		return err
	}
	c.length = c.b.queue.view("caches", "len", c.lens)
	c.slots = make([]slotState, c.spec.Slots)
	for i := range c.slots {
		c.slots[i].tailAt = never
	}
	c.snapshots = make([]bool, c.spec.Snapshots)
	for _, s := range c.spec.Layers {
		l := &layer{spec: s}
		c.layers = append(c.layers, l)
		switch s.Kind {
		case kernels.Attention:
			err = c.allocateAttention(l)
		case kernels.Delta:
			err = c.allocateDelta(l)
		case kernels.Pooled:
			err = c.allocatePooled(l)
		}
		if err == nil {
			err = c.allocateSide(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *caches) allocateAttention(l *layer) (err error) {
	l.panels = (l.spec.Values() + panelRows - 1) / panelRows
	l.keySize = l.spec.HeadDim * page
	l.valueSize = l.panels * panelRows * page
	if err := c.allocateIndex(l); err != nil {
		return err
	}
	heads := c.spec.Pages * l.spec.KVHeads
	keys := roundUp(heads*l.keySize*2, lineBytes)
	if l.mem, err = c.b.mem.alloc(kernels.KV, keys+heads*l.valueSize*2); err != nil {
		return err
	}
	l.base = l.mem.ptr()
	l.values = addBytes(l.base, keys)
	l.odd = make([]bool, heads)
	return nil
}

func (c *caches) allocateDelta(l *layer) (err error) {
	s := l.spec
	l.vdim = roundUp(s.VDim, lanes)
	l.channels = 2*s.KHeads*s.KDim + s.VHeads*s.VDim
	l.cols = roundUp(window+c.spec.MaxDraft, lanes)
	at := roundUp(s.VHeads*s.KDim*l.vdim*4, lineBytes)
	l.keysAt = at
	at += roundUp(s.KHeads*s.KDim*l.cols*4, lineBytes)
	l.recordsAt = at
	at += roundUp(s.VHeads*l.cols*l.vdim*4, lineBytes)
	l.decayAt = at
	at += roundUp(s.VHeads*l.cols*4, lineBytes)
	l.bank = at
	l.convAt = 2 * at
	l.slot = l.convAt + roundUp((c.ring+2*convTail)*l.channels*2, lineBytes)
	l.snapshot = l.keysAt + roundUp(convTail*l.channels*2, lineBytes)
	if l.mem, err = c.b.mem.alloc(kernels.State, c.spec.Slots*l.slot); err != nil {
		return err
	}
	l.base = l.mem.ptr()
	if c.spec.Snapshots > 0 {
		l.snap, err = c.b.mem.alloc(kernels.State, c.spec.Snapshots*l.snapshot)
	}
	return err
}

// ID returns the number of the caches.
func (c *caches) ID() uint32 { return c.id }

// Layer returns the handle of layer i.
func (c *caches) Layer(i int) kernels.Layer { return kernels.Layer{Caches: c.id, Index: int32(i)} }

// Spec returns what the caches were made for.
func (c *caches) Spec() kernels.CacheSpec { return c.spec }

// Len is the table of committed lengths.
func (c *caches) Len() kernels.Buf { return c.lens }

// Bytes returns the memory behind one page, one slot and one snapshot.
func (c *caches) Bytes() (pageBytes, slot, snapshot int64) {
	for _, l := range c.layers {
		pageBytes += sideBytes(l.spec) * page
		if p := l.pool; p != nil {
			pageBytes += 2 * int64(p.perPage*p.cols)
			slot += int64(p.slot)
			snapshot += int64(p.rings)
			continue
		}
		pageBytes += int64(l.spec.KVHeads*(l.keySize+l.valueSize)+l.spec.IndexDim*page) * 2
		slot += int64(l.slot)
		if l.blocks != nil {
			slot += int64(l.blocks.slot)
		}
		snapshot += int64(l.snapshot)
	}
	return pageBytes, slot, snapshot
}

// Close frees the memory, after running what is recorded.
func (c *caches) Close() error {
	if c.closed || c.b.closed {
		return nil
	}
	c.b.queue.flush()
	c.b.mem.open()
	defer c.b.mem.shut()
	return c.release()
}

func (c *caches) release() error {
	c.closed = true
	c.b.freed++
	var first error
	free := func(b block) {
		if b.chunk == nil {
			return
		}
		if err := c.b.mem.free(b); err != nil && first == nil {
			first = err
		}
	}
	free(c.pageMem)
	c.b.Free(c.lens)
	for _, l := range c.layers {
		free(l.mem)
		free(l.snap)
		free(l.side.mem)
		if l.pool != nil {
			free(l.pool.slots)
			free(l.pool.pages)
			free(l.pool.snaps)
		}
		if l.index != nil {
			free(l.index.mem)
		}
		if l.blocks != nil {
			free(l.blocks.mem)
		}
	}
	return first
}

// cachesOf resolves a handle for an operation.
func (q *queue) cachesOf(op string, id uint32) *caches {
	if int(id) >= len(q.b.caches) || q.b.caches[id].closed {
		q.bad("%s: there are no caches %d", op, id)
		return nil
	}
	if q.capturing {
		q.list.use(&q.list.caches, id)
	}
	return q.b.caches[id]
}

// layerOf resolves the handle of a layer.
func (q *queue) layerOf(op string, h kernels.Layer, k kernels.LayerKind) (*caches, *layer) {
	c := q.cachesOf(op, h.Caches)
	if c == nil {
		return nil, nil
	}
	if h.Index < 0 || int(h.Index) >= len(c.layers) {
		q.bad("%s: there is no layer %d in %d", op, h.Index, len(c.layers))
		return nil, nil
	}
	l := c.layers[h.Index]
	if l.spec.Kind != k {
		q.bad("%s: layer %d is of another kind", op, h.Index)
		return nil, nil
	}
	return c, l
}
