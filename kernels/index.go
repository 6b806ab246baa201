package kernels

import "fmt"

// IndexSpec describes the choice of keys for sparse attention (DeepSeek-V3.2's
// "lightning indexer"). The projection buffer holds per row
//
//	q [Heads, Dim] | k [Dim]
//
// The operation rotates the first Rotary channels of q and k as Attend does, appends k
// to the layer's index cache at the row's position, and scores the keys at positions
// FirstKey..Pos along the row's own path:
//
//	score(s) = sum over h of weights[h] * relu(q_h . k_s)
//
// in FP32, heads in ascending order. The TopK keys of the largest score are chosen,
// all where there are no more; of equal scores the lower position, and a NaN counts as
// minus infinity. A positive factor of all scores changes nothing and is left out.
type IndexSpec struct {
	Heads, Dim int
	Rope       Weight // as in AttnSpec
	Rotary     int
	TopK       int
	FirstKey   int
}

// Check validates the geometry against that of a layer's cache.
func (s IndexSpec) Check(l LayerSpec) error {
	switch {
	case l.IndexDim == 0 || s.Dim != l.IndexDim:
		return fmt.Errorf("index keys of %d; the layer's cache has keys of %d", s.Dim, l.IndexDim)
	case s.Heads <= 0 || s.TopK <= 0 || s.FirstKey < 0:
		return fmt.Errorf("%d heads that choose %d keys from %d on; the first two must be positive", s.Heads, s.TopK, s.FirstKey)
	case s.Rotary < 0 || s.Rotary > s.Dim || s.Rotary%2 != 0:
		return fmt.Errorf("%d rotary channels of %d", s.Rotary, s.Dim)
	}
	return nil
}

// BlockSpec describes the choice of keys by blocks (Qwen4's sparse attention). The
// projection buffer holds per row
//
//	q [Heads, Dim] | k [Dim]
//
// The operation appends k as it is to the layer's index cache. Ratio consecutive keys
// from FirstKey on are a block, whose key is their mean, normed by KNorm and rotated by
// the block's first position as Attend rotates; queries are normed by QNorm and
// rotated by their own. A row sees the blocks that end at or before its position, and
// scores them along its own path:
//
//	score(block) = sum over h of relu(q_h . key)
//
// in FP32, heads in ascending order. Chosen are the keys of the TopK blocks of the
// largest score, of equal ones the lower, a NaN as minus infinity, and the keys behind
// the last whole block. A backend may keep the keys of whole blocks, so that all calls
// for a layer must have one FirstKey and the same norm and rotation of keys.
type BlockSpec struct {
	Heads, Dim   int
	QNorm, KNorm Norm
	Rope         Weight // as in AttnSpec
	Rotary       int
	Ratio, TopK  int
	FirstKey     int
}

// Check validates the geometry against that of a layer's cache.
func (s BlockSpec) Check(l LayerSpec) error {
	if s.Ratio <= 0 || s.Ratio != l.IndexRatio {
		return fmt.Errorf("blocks of %d keys; it must be positive, and the layer's cache has blocks of %d", s.Ratio, l.IndexRatio)
	}
	return IndexSpec{Heads: s.Heads, Dim: s.Dim, Rotary: s.Rotary, TopK: s.TopK, FirstKey: s.FirstKey}.Check(l)
}

// MaskWords is the number of I32 columns of a mask over positions: bit p%32 of word
// p/32 says that position p is chosen.
func MaskWords(positions int) int { return (positions + 31) / 32 }
