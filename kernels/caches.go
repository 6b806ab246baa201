package kernels

// LayerKind says what a layer remembers.
type LayerKind uint8

// Kinds of cached layers.
const (
	Attention LayerKind = iota + 1 // paged keys and values
	Delta                          // Gated DeltaNet: state, window records, convolution inputs
)

// LayerSpec is the cache geometry of one layer.
type LayerSpec struct {
	Kind LayerKind
	// Attention: KVHeads heads of keys of HeadDim and values of ValueDim (0:
	// of HeadDim).
	KVHeads, HeadDim, ValueDim int
	// IndexDim is the width of the keys by which Select chooses; 0: none.
	IndexDim int
	// Of any kind: Tokens says that the layer keeps the token of each position
	// (Queue.Grams), RowDim is the width of the BF16 row that it keeps of each
	// (Queue.Blend); 0: none.
	Tokens bool
	RowDim int
	// Delta: KHeads key heads of KDim, VHeads value heads of VDim, Conv taps.
	KHeads, VHeads, KDim, VDim, Conv int
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
