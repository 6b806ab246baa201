package vec

//go:generate go run ./internal/gen

// PanelRows is the number of output rows in one panel of packed weights.
const PanelRows = 64

// Set is one implementation of the primitives. All sets give the same bits for
// every primitive; the Go set is the definition. Slices are used where a length
// is natural; n is always len(dst) unless stated. No primitive allocates.
//
// BF16 values are uint16. "Chain" means: one FP32 accumulator per output,
// terms added one after another in the stated order. "Tree16" means: term i
// goes to lane i mod 16 (chain within the lane, ascending), then the lanes are
// added pairwise as a tree: l[i]+l[i+8], then +4, +2, +1. Products of BF16
// pairs in Gemm are exact; every other product is rounded to FP32 before it is
// added (no FMA). Subnormal inputs and results of Gemm are zeros of their sign;
// all other primitives run with the default MXCSR.
type Set struct {
	// Name as in EXACTA_KERNELS: "avx512bf16", "avx512f", "avx2", "go".
	Name string
	// MaxM4 and MaxM2 are the rows that Gemm takes in one tile with vecs 4
	// and 2. Any m works, a whole prefill chunk included; multiples of these
	// waste least.
	MaxM4, MaxM2 int

	// Gemm computes out[r*outStride+n] (+)= sum over K of x[r*xStride+k] *
	// w[n][k] for r < m and n < 16*vecs, as a chain over pairs of k, the
	// odd element of a pair first. panel points at the first of the vecs
	// 16-row groups inside a panel [K/2][4][16][2]; k2 is K/2. With load the
	// accumulators start from out, else from +0. vecs is 4 or 2; 4 is the
	// faster for any m, and 2 is for the last panel of a matrix with few
	// rows. Lengths are the caller's word: out, panel and x must hold what
	// the numbers say. Memory some 100 KiB past the panel may be prefetched,
	// which needs no memory to be there.
	Gemm func(out *float32, outStride int, panel *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool)
	// Stream is Gemm for panels that come from memory rather than from a
	// cache, one after another: slower where they are cached, faster where
	// they are not; nil where Gemm is as good. next is what the caller goes on with if that is not what
	// lies behind the panel, else nil; it may be prefetched, too.
	Stream func(out *float32, outStride int, panel, next *uint16, vecs int, x *uint16, xStride, m, k2 int, load bool)

	// Int4 computes out[r*outStride+n] = sum over K of x[r*xStride+k] * w[n][k]
	// for r < m and n < Int4Outputs, with 4-bit weights w = scale*(q - zero) as
	// laid out in data and meta (see Int4Meta) and x float32 numbers that BF16
	// holds: the chain of Gemm, whose products are exact here too. k is a
	// multiple of group, which is 32, 64 or 128. Some 4 KiB past data may be
	// prefetched.
	Int4 func(out *float32, outStride int, data, meta *byte, x *float32, xStride, m, k, group int)

	// Interleave puts rows of BF16 pairs into the lanes of a panel:
	// dst[i*PanelRows+r] = pair i of row r, for r < LaneRows and i <
	// LaneRows*blocks; row r begins line*r bytes after src, at any byte. odd is
	// not 0 if any element is a NaN or an infinity.
	Interleave func(dst *uint32, src *byte, line, blocks int) (odd uint64)

	// ToBF16 rounds to nearest even, subnormals to signed zero, NaN quiet.
	ToBF16 func(dst []uint16, src []float32)
	// FromBF16 widens.
	FromBF16 func(dst []float32, src []uint16)
	// SumSquaresBF16 and SumSquares are Tree16 sums of squares.
	SumSquaresBF16 func(x []uint16) float32
	SumSquares     func(x []float32) float32
	// ScaleWeightBF16: dst = bf16((x*s)*w) with x BF16.
	ScaleWeightBF16 func(dst, x []uint16, s float32, w []float32)
	// ScaleWeight: dst = (x*s)*w in FP32.
	ScaleWeight func(dst, x []float32, s float32, w []float32)
	// Scale: dst = x*s.
	Scale func(dst, x []float32, s float32)
	// Add: dst += x.
	Add func(dst, x []float32)
	// Axpy: dst += a*x (product rounded).
	Axpy func(dst, x []float32, a float32)
	// Mul: dst = x*y.
	Mul func(dst, x, y []float32)
	// DeltaRow: u = ((v - grown*fromK) - sumK) * beta and then
	// dst = (fromQ*grown + sumQ) + u*mix.
	DeltaRow func(dst, u, v, fromK, sumK, fromQ, sumQ []float32, grown, beta, mix float32)
	// Max returns the largest element (NaN skipped; -Inf if none; a zero is
	// +0).
	Max func(x []float32) float32
	// ExpSub: dst = exp(x - s); returns the Tree16 sum of dst.
	ExpSub func(dst, x []float32, s float32) float32
	// SiLU, Sigmoid: elementwise, x / (1 + exp(-x)) and 1 / (1 + exp(-x)).
	SiLU, Sigmoid func(dst, x []float32)
	// SwiGLUBF16: dst = bf16(silu(g) * u).
	SwiGLUBF16 func(dst []uint16, g, u []float32)
	// AddBF16: dst = bf16(widen(res) + x).
	AddBF16 func(dst, res []uint16, x []float32)
	// MulSigmoidBF16: dst = bf16(x * sigmoid(widen(g))).
	MulSigmoidBF16 func(dst []uint16, x []float32, g []uint16)
	// NormGateBF16: dst = bf16(((x*s)*w) * act(widen(z))), silu or sigmoid.
	NormGateBF16 func(dst []uint16, x []float32, s float32, w []float32, z []uint16, silu bool)
	// MatVec: dst[n] = sum_i v[i] * a[i*stride+n], chain over i ascending
	// from +0, i < len(v), n < len(dst). Multiples of 16 are fast.
	MatVec func(dst, a []float32, stride int, v []float32)
	// MatVec2: MatVec with two vectors over the same matrix in one pass.
	MatVec2 func(d0, d1, a []float32, stride int, v0, v1 []float32)
	// MatVecAdd2: MatVec2 with chains that start from d0 and d1.
	MatVecAdd2 func(d0, d1, a []float32, stride int, v0, v1 []float32)
	// RotateHalf: for i < len(cos): x0 = x[i], x1 = x[i+len(cos)];
	// x[i] = x0*cos - x1*sin; x[i+n] = x1*cos + x0*sin (products rounded).
	RotateHalf func(x, cos, sin []float32)
	// Conv4BF16: dst[c] = bf16(silu(sum_j taps[j*n+c] * widen(in_j[c]))),
	// chain over j ascending from +0; in has 4 rows, nil rows are zeros and
	// are skipped; n = len(dst).
	Conv4BF16 func(dst []uint16, taps []float32, in *[4][]uint16)
	// Top2 returns the two largest elements and their indices, ties to the
	// lower index, NaN skipped and counted; index -1 where there is none.
	Top2 func(x []float32) (i1, i2 int, v1, v2 float32, nans int)
	// HashSegment is kernels.HashSegmentOf.
	HashSegment func(x []float32) uint64
	// ReadAll reads every byte of x once and returns a checksum: the plain
	// read loop against which decode is measured.
	ReadAll func(x []byte) uint64
	// Peak runs iterations of a loop of the set's multiply-adds in registers,
	// touching no memory, and returns how many BF16 multiply-adds it did: the
	// arithmetic limit against which prefill is measured.
	Peak func(iterations int) (macs int64)
}
