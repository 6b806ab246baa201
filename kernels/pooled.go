package kernels

import "fmt"

// RotateSpec describes Queue.Rotate. Each of Heads heads of Dim channels is
// divided by its root mean square if Unit is set (Eps is added to the mean square),
// its last Rotary channels are rotated in pairs (i, i+1) by the row of Rope at the
// row's position (cosines, then sines; Rotary/2 of each), or turned back if Inverse,
// rounded to BF16, and then by Round.
//
// With Ratio > 0 rows that complete a group of that many positions are rotated by
// the row of the group's first position, and other rows are not written.
type RotateSpec struct {
	Heads, Dim, Rotary int
	Rope               Weight // Table [positions, Rotary]
	Inverse            bool
	Unit               bool
	Eps                float32
	Ratio              int
	Round              Rounding
}

// Check validates the shape.
func (s RotateSpec) Check() error {
	if s.Heads <= 0 || s.Dim <= 0 || s.Rotary <= 0 || s.Rotary%2 != 0 || s.Rotary > s.Dim || s.Ratio < 0 || s.Round > RoundFP4Fine {
		return fmt.Errorf("%d heads of %d, %d channels rotated, groups of %d, rounding %d", s.Heads, s.Dim, s.Rotary, s.Ratio, s.Round)
	}
	return nil
}

// PoolSpec describes Queue.Pool (the compressor of DeepSeek-V4). A row of the
// projection is
//
//	keys [n, Dim] | gates [n, Dim]
//
// with n = 2 where the layer's groups overlap, else 1, and Dim the layer's HeadDim,
// or its IndexDim with Index set. For each channel the keys of a group's positions,
// along the row's own path, are averaged by the softmax of their gates plus Bias.
// Where groups overlap the positions of the group before come first, with the first
// of their two keys, gates and biases; a group's own positions have the second. The
// first group has none before it. Softmax and sum are FP32 in ascending positions,
// rounded once.
type PoolSpec struct {
	Index bool
	Bias  Weight // Table [Ratio, n*Dim], by place in the group; none is zero
}

// Dim returns the width of a pooled key of a layer.
func (s PoolSpec) Dim(l LayerSpec) int {
	if s.Index {
		return l.IndexDim
	}
	return l.HeadDim
}

// Check validates the use of a layer.
func (s PoolSpec) Check(l LayerSpec) error {
	if l.Ratio <= 1 || s.Dim(l) == 0 {
		return fmt.Errorf("groups of %d positions with keys of %d, pooled; they need at least 2 and keys", l.Ratio, s.Dim(l))
	}
	return nil
}

// ChooseSpec describes Queue.Choose. A row scores the groups that are complete at its
// position, along its own path:
//
//	score(g) = sum over h of weights[h] * relu(q_h . k_g)
//
// in FP32, heads in ascending order. The TopK of the largest score are chosen, all
// where there are no more; of equal scores the lower group, and a NaN counts as minus
// infinity. A positive factor of all scores changes nothing and is left out.
//
// With Within, a mask like dst, only its groups are scored. With Best, a second mask
// is written to it, of the groups of the BestBlocks blocks of BlockSize groups in
// a row of the largest score (of a block: its largest; ties to the lower block),
// where the block of the last complete group always is one; all blocks where there
// are no more.
type ChooseSpec struct {
	Heads, Dim, TopK      int
	Within, Best          Buf
	BestBlocks, BlockSize int
}

// Check validates the geometry against that of a layer's cache.
func (s ChooseSpec) Check(l LayerSpec) error {
	switch {
	case l.Ratio == 0 || l.IndexDim == 0 || s.Dim != l.IndexDim:
		return fmt.Errorf("index keys of %d; the layer has groups of %d with keys of %d", s.Dim, l.Ratio, l.IndexDim)
	case s.Heads <= 0 || s.TopK <= 0:
		return fmt.Errorf("%d heads that choose %d groups; both must be positive", s.Heads, s.TopK)
	case !s.Best.None() && (s.BestBlocks <= 0 || s.BlockSize <= 0):
		return fmt.Errorf("%d blocks of %d groups; both must be positive", s.BestBlocks, s.BlockSize)
	}
	return nil
}

// PooledSpec describes Queue.AttendPooled: attention whose keys are their own
// values, with one key for all heads (DeepSeek-V4, arXiv:2412.19437 and after). A row
// sees, along its own path, the keys of the window's positions
// max(FirstKey, Pos-Window+1)..Pos and, with Groups, those of the groups that are
// complete at its position, in ascending order, one softmax over both; Sink adds
// exp(Sink[h]) to the sum of head h.
//
// With Block the rows of a span, a chain, are filled in together: each sees the keys of
// the window's positions max(FirstKey, Start-Window)..Start-1 and those of all the rows,
// in order, and the window keeps none of them.
type PooledSpec struct {
	Heads, Dim int
	Scale      float32
	Sink       Weight // Vector [Heads]; none: no sink
	FirstKey   int
	Groups     bool
	Block      bool
	// Chosen, if any, is a mask that Choose left, I32 [Rows, words]: of the
	// groups a row sees only those.
	Chosen Buf
}

// Check validates the geometry against those of the window's layer and the groups'.
func (s PooledSpec) Check(window, groups LayerSpec) error {
	switch {
	case s.Heads <= 0 || window.Window == 0 || s.Dim != window.HeadDim || s.FirstKey < 0:
		return fmt.Errorf("%d heads of %d from key %d on; the layer has a window of %d keys of %d", s.Heads, s.Dim, s.FirstKey, window.Window, window.HeadDim)
	case s.Groups && (groups.Ratio == 0 || groups.HeadDim != s.Dim):
		return fmt.Errorf("heads of %d over groups of %d with keys of %d", s.Dim, groups.Ratio, groups.HeadDim)
	case s.Groups && s.Block:
		return fmt.Errorf("blocks with groups; rows that are filled in together see the window alone")
	}
	return nil
}

// HyperSpec describes the coefficients of n = Streams residual streams
// (manifold-constrained hyper-connections, arXiv:2512.24880, as in DeepSeek-V4). With
// f the row divided by its root mean square (NormEps is added to the mean square) and
// m = f Fnᵀ, all in FP32:
//
//	pre[h]     = sigmoid(m[h] * Scale[0] + Base[h]) + Eps
//	post[h]    = 2 * sigmoid(m[n+h] * Scale[1] + Base[n+h])
//	comb[j, k] = m[2n+j*n+k] * Scale[2] + Base[2n+j*n+k], of which the softmax over
//	             each row j is taken and Eps added; then columns are divided by
//	             their sum + Eps, and Iters-1 times first rows, then columns are
//
// A row of the result is pre | post | comb. With Iters 0 it is pre alone.
type HyperSpec struct {
	Streams      int
	Fn           Weight // Table [Cols(), Streams*H]
	Base, Scale  Weight // Vectors [Cols()] and [3], or [1] with Iters 0
	NormEps, Eps float32
	Iters        int
}

// MaxStreams bounds HyperSpec.Streams.
const MaxStreams = 8

// Cols returns the number of coefficients of a row.
func (s HyperSpec) Cols() int {
	if s.Iters == 0 {
		return s.Streams
	}
	return s.Streams * (2 + s.Streams)
}

// Scales returns the number of elements of Scale.
func (s HyperSpec) Scales() int {
	if s.Iters == 0 {
		return 1
	}
	return 3
}

// Check validates the shape over rows of cols columns.
func (s HyperSpec) Check(cols int) error {
	if s.Streams <= 0 || s.Streams > MaxStreams || cols%s.Streams != 0 || s.Iters < 0 {
		return fmt.Errorf("%d streams in %d columns, balanced %d times; want 1 to %d streams of equal width", s.Streams, cols, s.Iters, MaxStreams)
	}
	return nil
}
