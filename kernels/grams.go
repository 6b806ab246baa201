package kernels

import (
	"fmt"
	"math"
)

// Bounds of a GramSpec.
const (
	MaxGram        = 8  // tokens of the longest n-gram
	MaxGramColumns = 64 // hashes of a row
)

// GramSpec describes hashed n-grams of the tokens that end in a row (Engram,
// arXiv:2601.07372, as Qwen4 and DeepSeek-V4.1 have it). With t_s the token s positions
// back along the row's own path,
//
//	id_s = Map[t_s], or Pad where the look-back ended before it
//	h_n  = id_0*Multipliers[0] xor ... xor id_(n-1)*Multipliers[n-1]
//
// in 64 bits without sign, and the columns of a row are, for n = 2..Size in order,
// Heads hashes h_n mod Mod[c] + Offset[c]. The look-back ends before the start of the
// sequence and, from s = 1 on, at a token Stop, which is not looked at.
//
// The operation keeps the token of each row at its position in the layer's cache, so
// that later spans look back over it; rows of a span that are not kept are forgotten.
type GramSpec struct {
	Size, Heads int
	Multipliers []uint64 // Size
	Mod, Offset []uint32 // (Size-1)*Heads
	Stop        int32    // -1: none
	Pad         int32    // an id: what Map gives, not a token
	Map         Buf      // I32 [vocabulary, 1]; none: an id is the token
}

// Columns returns the number of hashes of a row.
func (s GramSpec) Columns() int { return (s.Size - 1) * s.Heads }

// Check validates the description against a layer's cache.
func (s GramSpec) Check(l LayerSpec) error {
	n := s.Columns()
	switch {
	case !l.Tokens:
		return fmt.Errorf("the layer's cache keeps no tokens")
	case s.Size < 2 || s.Size > MaxGram || s.Heads <= 0 || n > MaxGramColumns:
		return fmt.Errorf("n-grams of 2 to %d tokens in %d heads; they must have 2 to %d, and %d hashes at most", s.Size, s.Heads, MaxGram, MaxGramColumns)
	case len(s.Multipliers) != s.Size || len(s.Mod) != n || len(s.Offset) != n:
		return fmt.Errorf("%d multipliers, %d moduli, %d offsets for n-grams of %d tokens in %d heads", len(s.Multipliers), len(s.Mod), len(s.Offset), s.Size, s.Heads)
	case s.Pad < 0:
		return fmt.Errorf("pad %d; it must not be negative", s.Pad)
	}
	for i, m := range s.Mod {
		if m == 0 || uint64(m)+uint64(s.Offset[i]) > math.MaxInt32 {
			return fmt.Errorf("column %d: modulus %d, offset %d; the first must be positive, the sum at most %d", i, m, s.Offset[i], math.MaxInt32)
		}
	}
	return nil
}

// Hash writes the hashes of a row whose ids are given, id s of the token s positions
// back, all Size of them.
func (s GramSpec) Hash(dst []int32, ids []uint64) {
	h := ids[0] * s.Multipliers[0]
	for n := 2; n <= s.Size; n++ {
		h ^= ids[n-1] * s.Multipliers[n-1]
		for c := (n - 2) * s.Heads; c < (n-1)*s.Heads; c++ {
			dst[c] = int32(h%uint64(s.Mod[c]) + uint64(s.Offset[c]))
		}
	}
}
