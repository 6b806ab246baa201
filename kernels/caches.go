package kernels

import "fmt"

// LayerKind says what a layer remembers.
type LayerKind uint8

// Kinds of cached layers.
const (
	Attention LayerKind = iota + 1 // paged keys and values
	Delta                          // Gated DeltaNet: state, window records, convolution inputs
	Pooled                         // the last keys of a window, and keys pooled from groups of positions
)

// LayerSpec is the cache geometry of one layer.
type LayerSpec struct {
	Kind LayerKind
	// Attention: KVHeads heads of keys of HeadDim and values of ValueDim (0:
	// of HeadDim).
	KVHeads, HeadDim, ValueDim int
	// IndexDim is the width of the keys by which Select or SelectBlocks chooses;
	// 0: none. IndexRatio is the number of keys of a block; 0: keys are chosen.
	IndexDim, IndexRatio int
	// Of any kind: Tokens says that the layer keeps the token of each position
	// (Queue.Grams), RowDim is the width of the BF16 row that it keeps of each
	// (Queue.Blend); 0: none.
	Tokens bool
	RowDim int
	// Delta: KHeads key heads of KDim, VHeads value heads of VDim, Conv taps.
	KHeads, VHeads, KDim, VDim, Conv int
	// Pooled: the last Window keys of HeadDim, which are their own values; 0:
	// none. Ratio positions make a group, whose key, of HeadDim and its own
	// value too, and index key, of IndexDim, are kept in pages; 0: none. With
	// Overlap what Pool pools reaches back to the group before.
	Window, Ratio int
	Overlap       bool
}

// pooledRatio bounds Ratio: a group and the one before it fit in a ring of State.
const pooledRatio = 4096

// Groups returns the number of groups of a Pooled layer that are complete in
// positions 0..length-1.
func (l LayerSpec) Groups(length int) int {
	if l.Ratio == 0 {
		return 0
	}
	return length / l.Ratio
}

// PageGroups returns the places for groups of a Pooled layer in a page. A group has
// its place in the page of its last position.
func (l LayerSpec) PageGroups() int {
	if l.Ratio == 0 {
		return 0
	}
	return (PageTokens + l.Ratio - 1) / l.Ratio
}

// GroupPlace returns the page of a slot, counted from its start, and the place in it
// that belong to a group.
func (l LayerSpec) GroupPlace(group int) (page, place int) {
	page = ((group+1)*l.Ratio - 1) / PageTokens
	return page, group - page*PageTokens/l.Ratio
}

// Reach returns the positions that Pool reads for one group.
func (l LayerSpec) Reach() int {
	if l.Overlap {
		return 2 * l.Ratio
	}
	return l.Ratio
}

// PoolCols returns the width of what a Pooled layer remembers of each position until
// its groups are pooled: keys and gates, of the group's key and of its index key.
// Groups of one position are pooled from nothing.
func (l LayerSpec) PoolCols() int {
	if l.Ratio <= 1 {
		return 0
	}
	return 2 * (l.HeadDim + l.IndexDim) * l.Reach() / l.Ratio
}

// Rings returns the lengths, in positions, of the rings of a Pooled layer for keys of
// the window and for what is pooled, if a span of maxDraft+1 rows may be dropped
// and drafts as many may stand behind it.
func (l LayerSpec) Rings(maxDraft int) (window, pool int) {
	if l.Window > 0 {
		window = l.Window + 2*(maxDraft+1)
	}
	if l.PoolCols() > 0 {
		pool = l.Reach() + 2*(maxDraft+1)
	}
	return window, pool
}

// CheckPooled validates the geometry of a Pooled layer.
func (l LayerSpec) CheckPooled() error {
	switch {
	case l.HeadDim <= 0 || l.IndexDim < 0 || l.Window < 0 || l.Ratio < 0 || l.Window+l.Ratio == 0:
		return fmt.Errorf("a window of %d keys of %d, groups of %d with index keys of %d; a layer needs one of window and groups, and keys", l.Window, l.HeadDim, l.Ratio, l.IndexDim)
	case l.HeadDim%2 != 0 || l.IndexDim%2 != 0:
		return fmt.Errorf("keys of %d and index keys of %d; they must be even", l.HeadDim, l.IndexDim)
	case l.Ratio > pooledRatio || l.Overlap && l.Ratio < 2:
		return fmt.Errorf("groups of %d positions, overlapping: %t; want at most %d, and at least 2 if they overlap", l.Ratio, l.Overlap, pooledRatio)
	}
	return nil
}

// Values returns the width of a head's values in an Attention layer.
func (l LayerSpec) Values() int {
	if l.ValueDim > 0 {
		return l.ValueDim
	}
	return l.HeadDim
}

// CacheSpec asks for the caches of an engine: the target's layers and the
// drafters' behind them, sharing one page table per slot.
type CacheSpec struct {
	Layers []LayerSpec
	// Slots is the number of sequences that can be resident at once.
	Slots int
	// Pages is the number of KV pages in all; a page holds PageTokens
	// positions of every attention layer.
	Pages int
	// SlotPages is the length of a slot's page table: the longest sequence
	// in pages.
	SlotPages int
	// MaxDraft is the most rows after the first that a partly kept span may
	// have (k of a verification); at most WindowTokens - 1. Longer spans
	// are committed whole.
	MaxDraft int
	// Snapshots is the number of recurrent snapshots for the prefix cache.
	Snapshots int
}

// Layer is the handle of one layer's cache.
type Layer struct {
	Caches uint32
	Index  int32
}

// Caches is the memory of the sequences of an engine. A slot owns its page
// table row, its committed length, per Delta layer two states with a selector,
// the records of its open window and the last inputs of the convolution. All
// of it is changed only by operations of a Queue (Attend, Delta, Grams, Commit, Reset,
// SetPages, Save, Restore), in their order.
type Caches interface {
	// ID returns the number that Layer.Caches carries.
	ID() uint32
	// Layer returns the handle of layer i of the spec.
	Layer(i int) Layer
	// Spec returns what the caches were made for.
	Spec() CacheSpec
	// Len is the table of committed lengths, I32 [Slots, 1], kept by Commit,
	// Reset and Restore and read by Chain.
	Len() Buf
	// Bytes returns the memory behind one page, one slot and one snapshot.
	Bytes() (page, slot, snapshot int64)
	// Close frees the memory.
	Close() error
}
