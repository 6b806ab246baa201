package kernels

// Act is an activation function.
type Act uint8

// Activation functions.
const (
	Identity Act = iota
	SiLU
	Sigmoid
	// SwiGLU consumes a paired weight: silu(gate) * up; dst has half as many
	// columns as the weight has rows.
	SwiGLU
)

// Norm is a root-mean-square norm over each row (or over each group of Group
// columns, when Group > 0, with one weight of Group elements for all groups or, in
// Queue.Norm alone, one of as many elements as the row):
//
//	n = x / sqrt(mean(x^2) + Eps)
//	y = n * w         plain (Llama, Qwen3)
//	y = n * (1 + w)   Centered (Qwen3.5)
//
// in FP32 with one rounding at the end. A zero W means "no norm". With a Bias
// (Vector like W) it is a layer norm over the whole row, which Queue.Norm alone has:
//
//	y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + Eps) * w + Bias
type Norm struct {
	W, Bias  Weight
	Eps      float32
	Centered bool
	Group    int
}

// Linear says what surrounds a matrix product: the norm of its input and the
// fate of its output.
type Linear struct {
	// In normalises x before the product; its result is rounded to BF16.
	In Norm
	// Bias is a Vector whose elements BiasFrom.. are added to the N columns of
	// the FP32 product; none is zero. Not with SwiGLU.
	Bias     Weight
	BiasFrom int
	// Act is applied to the FP32 result.
	Act Act
	// Residual, if any, is added in FP32 before the one rounding to dst's
	// kind. It may be dst itself.
	Residual Buf
}

// AttnSpec describes an attention layer. The projection buffer holds per row
//
//	q [QHeads, HeadDim] (Gated: [QHeads, 2, HeadDim], q then gate) | k [KVHeads, HeadDim] | v [KVHeads, ValueDim]
//
// and the operation norms q and k per head (if the norms are set), rotates the
// first Rotary channels of each head in half-split pairs (i, i+Rotary/2) by the
// row of Rope at the row's position (cosines, then sines; Rotary/2 of each),
// appends k and v to the cache at the row's position, attends to the keys at
// positions FirstKey..Pos along the row's own path, and multiplies by
// sigmoid(gate) if Gated. Query head h reads KV head h / (QHeads/KVHeads).
type AttnSpec struct {
	QHeads, KVHeads, HeadDim int
	ValueDim                 int     // 0 means HeadDim, as it must be where Gated
	Scale                    float32 // of the scores, usually HeadDim^-0.5
	Gated                    bool
	QNorm, KNorm             Norm
	Rope                     Weight // Table [positions, Rotary]; none means no rotation
	Rotary                   int
	FirstKey                 int // keys before this position do not exist (MTP slot 0)
	// Keys, if any, is a mask that Select left, I32 [Rows, words]: a row sees
	// only the keys that it chose.
	Keys Buf
}

// Values returns the width of a head's values and outputs.
func (s AttnSpec) Values() int {
	if s.ValueDim > 0 {
		return s.ValueDim
	}
	return s.HeadDim
}

// DeltaSpec describes a Gated DeltaNet layer (Yang et al. 2024,
// arXiv:2412.06464, as in Qwen3.5). The projection buffer holds per row
//
//	q [KHeads*KDim] | k [KHeads*KDim] | v [VHeads*VDim] | z [VHeads*VDim] | b [VHeads] | a [VHeads]
//
// The operation convolves q|k|v causally over time with Taps [C, Conv] (state
// by position, zeros before the start) and applies SiLU, normalises q and k per
// head (L2, 1e-6 added to the sum) and scales q by KDim^-0.5, forms
// beta = sigmoid(b) and g = -exp(ALog) * softplus(a + DtBias), advances the
// window form of the recurrence, and writes
//
//	rms(o; Norm) * act(z)    per value head, Norm plain
//
// Value head h reads key head h / (VHeads/KHeads).
type DeltaSpec struct {
	KHeads, VHeads, KDim, VDim, Conv int
	Taps                             Weight // Taps [2*KHeads*KDim + VHeads*VDim, Conv]
	ALog, DtBias                     Weight // Vector [VHeads]
	Norm                             Norm   // Vector [VDim]
	Gate                             Act    // SiLU or Sigmoid
}

// Columns of a Stats row.
const (
	StatTop1   = iota // id of the largest logit; ties to the lowest id
	StatTop2          // id of the second largest
	StatLogit1        // float32 bits of the largest logit
	StatLogit2        // float32 bits of the second largest
	StatHashLo        // low half of the row hash
	StatHashHi        // high half
	StatNaNs          // number of NaN logits in the row
	statSpare
	StatCols // columns of a statistics row
)

// HashSegment is the number of columns that the row hash folds at a time: the
// hash of a row is the fold of the hashes of its fixed segments, so that fused
// heads and vocabulary shards agree. See HashRow.
const HashSegment = 1024

// RuleID names an acceptance rule that has a device twin.
type RuleID uint8

// Rules with a device twin.
const (
	// RuleGreedy accepts a draft while it equals the target's argmax.
	RuleGreedy RuleID = iota + 1
)

// GraphKey identifies a captured program.
type GraphKey struct {
	Name        string
	Spans, Rows int
}

// Program is the handle of a captured program.
type Program struct{ ID uint32 }

// Ticket is a point in a queue. Wait blocks until all operations before it have
// run and returns the queue's error. Its cost is a flush of the queue.
type Ticket struct {
	Q   Waiter
	Seq uint64
}

// Waiter is the part of a queue that a Ticket needs.
type Waiter interface {
	WaitFor(seq uint64) error
}

// Wait blocks until the ticket's operations have run.
func (t Ticket) Wait() error { return t.Q.WaitFor(t.Seq) }

// Queue records operations in order; they run later, at the latest when a
// ticket is waited for. Buffers may be reused as soon as the operation that
// reads them is recorded: later operations run later. A shape that does not
// fit is a broken invariant of the caller and becomes the queue's sticky error,
// naming the operation.
//
// Operands are views; the number of rows computed is that of dst unless stated.
type Queue interface {
	// Embed gathers rows of a Matrix weight: dst[i] = table[ids[i]].
	// dst BF16 [R, K], ids I32 [R, 1].
	Embed(dst Buf, table Weight, ids Buf)
	// Gather copies rows: dst[i] = src[rows[i]]; a negative index gives
	// zeros. dst and src of one kind and width, rows I32 [R, 1].
	Gather(dst, src, rows Buf)
	// Scatter copies rows the other way: dst[rows[i]] = src[i]; negative
	// indices are skipped. rows I32 [R, 1] with R the rows of src.
	Scatter(dst, src, rows Buf)
	// Copy copies src to dst, of one kind and shape.
	Copy(dst, src Buf)
	// Norm normalises each row of x into dst (BF16), of one shape.
	Norm(dst, x Buf, n Norm)
	// MatMul computes dst = epilogue(norm(x) Wᵀ). x BF16 [R, K], w Matrix
	// [N, K], dst BF16 or F32 [R, N] ([R, N/2] for SwiGLU).
	MatMul(dst Buf, w Weight, x Buf, l Linear)
	// Route chooses experts for each row of logits (F32 [R, E]) as s says:
	// their indices to ids (I32 [R, K]), in the order of choice, and their
	// weights to weights (F32 [R, K]). Indices are valid whatever the logits
	// hold.
	Route(ids, weights, logits Buf, s *RouteSpec)
	// Experts multiplies each row of x (BF16 [R, K]) by each of the experts
	// that ids (I32 [R, n]) names for it: row i*n+j of dst (BF16 or F32 [R*n,
	// N], or [R*n, N/2] for SwiGLU) is act(x[i] Wᵀ) of matrix ids[i][j] of the
	// bank w. R is the rows of ids.
	Experts(dst Buf, w Weight, x, ids Buf, act Act)
	// Mix brings the experts of a row together: dst[i] = residual[i] + the sum
	// over j < n of weights[i][j] * (x[i*n+j] Wᵀ) of matrix ids[i][j] of the
	// bank w. Products with weights are rounded to FP32 and added in FP32 from
	// j = 0 upwards; the residual, if any, comes last, before the one rounding
	// to dst's kind. x BF16 [R*n, K], ids I32 and weights F32 [R, n], dst
	// BF16 or F32 [R, N], residual likewise; it may be dst itself.
	Mix(dst Buf, w Weight, x, ids, weights, residual Buf)
	// Blocks multiplies by a block-diagonal matrix: block i of the columns of x
	// (BF16 [R, n*K]) by the i-th of the n matrices [N, K] of w, of use
	// Diagonal, into block i of the columns of dst (BF16 or F32 [R, n*N]).
	Blocks(dst Buf, w Weight, x Buf)
	// Lookup gathers rows of a Rows weight, n side by side: columns j*K.. of
	// dst[i] are table[ids[i][j]]. dst BF16 [R, n*K], ids I32 [R, n].
	Lookup(dst Buf, table Weight, ids Buf)
	// Grams writes the hashes of the n-grams that end in each row, as s says:
	// dst I32 [Rows, Columns].
	Grams(dst Buf, c Layer, b *Batch, s *GramSpec)

	// Activate applies a function to each element: x F32, dst BF16 or F32, of
	// one shape.
	Activate(dst, x Buf, a Activation)
	// Collapse brings the residual streams of a row together: dst = scale * sum
	// over h of weights_h * x_h, in FP32 from h = 0 upwards, every product
	// rounded, with one rounding at the end. x BF16 [R, n*H], stream after
	// stream; dst BF16 [R, H]; weights F32 [R, n] (one a stream) or [R, n*H]
	// (one an element), or none for 1.
	Collapse(dst, x, weights Buf, scale float32)
	// Spread gives the output of a sub-layer to the streams: x_k = sum over j of
	// mix[j*n+k] * x_j + inject_k * y, added in that order in FP32, with one
	// rounding at the end; with no mix x_k itself is the sum. x BF16 [R, n*H]
	// is read and written, y BF16 [R, H], inject F32 [R, n], mix F32 [R, n*n].
	Spread(x, y, inject, mix Buf)
	// Gate says how much of what k finds each stream takes: dst_h =
	// sigmoid(sign(d) * sqrt(max(|d|, 1e-6))) of d = q_h . k_h / sqrt(H). q and k
	// BF16 [R, n*H], dst BF16 or F32 [R, n].
	Gate(dst, q, k Buf)
	// Blend adds gated values and their convolution over positions to the
	// streams, as s says: x BF16 [Rows, n*H], src BF16 [Rows, H+n], the value and
	// then the gates, which the layer's cache keeps.
	Blend(x, src Buf, c Layer, b *Batch, s *BlendSpec)

	// Attend runs an attention layer: proj BF16 [Rows, ...] as AttnSpec
	// says, dst BF16 [Rows, QHeads*ValueDim].
	Attend(dst, proj Buf, c Layer, b *Batch, s *AttnSpec)
	// Select chooses the keys that each row will attend to: dst (I32 [Rows,
	// words], words at least MaskWords of the positions in use) is the mask of
	// a row's positions. proj BF16 [Rows, (Heads+1)*Dim] as IndexSpec says,
	// weights F32 [Rows, Heads].
	Select(dst, proj, weights Buf, c Layer, b *Batch, s *IndexSpec)
	// SelectBlocks chooses the keys that each row will attend to by blocks, as
	// s says: dst as in Select, proj BF16 [Rows, (Heads+1)*Dim].
	SelectBlocks(dst, proj Buf, c Layer, b *Batch, s *BlockSpec)
	// Delta runs a Gated DeltaNet layer: proj BF16 [Rows, ...] as DeltaSpec
	// says, dst BF16 [Rows, VHeads*VDim].
	Delta(dst, proj Buf, c Layer, b *Batch, s *DeltaSpec)
	// Hyper computes the coefficients of streams: dst F32 [R, s.Cols()] of x
	// BF16 [R, Streams*H].
	Hyper(dst, x Buf, s *HyperSpec)
	// GateUp is a SwiGLU of two halves with a limit: dst[i][c] = silu(min(g, limit)) *
	// min(max(u, -limit), limit) of g = x[i][c] and u = x[i][N+c]. dst BF16 [R,
	// N], x F32 [R, 2N]; a limit of 0 is none.
	GateUp(dst, x Buf, limit float32)
	// Rotate norms, rotates and rounds heads as s says: dst and src BF16 [Rows,
	// Heads*Dim]; they may be the same.
	Rotate(dst, src Buf, b *Batch, s *RotateSpec)
	// Pool remembers what rows add to the groups of a Pooled layer, and leaves
	// the pooled key of its group in each row that completes one, zeros in
	// others: dst BF16 [Rows, Dim], proj F32 [Rows, n*2*Dim] as PoolSpec says.
	Pool(dst, proj Buf, c Layer, b *Batch, s *PoolSpec)
	// Keep makes a row of src (BF16 [Rows, HeadDim], or IndexDim with index set)
	// the key, or the index key, of the group that the row completes.
	Keep(src Buf, c Layer, b *Batch, index bool)
	// Choose chooses groups of a Pooled layer by their index keys: dst (I32
	// [Rows, words], words at least MaskWords of the groups in use) is the mask of
	// a row's groups. q BF16 [Rows, Heads*Dim], weights F32 [Rows, Heads].
	Choose(dst, q, weights Buf, c Layer, b *Batch, s *ChooseSpec)
	// AttendPooled attends to the window of layer c, to which it appends kv (but of
	// blocks), and
	// to the groups of layer groups as s says: dst and q BF16 [Rows, Heads*Dim],
	// kv BF16 [Rows, Dim].
	AttendPooled(dst, q, kv Buf, c, groups Layer, b *Batch, s *PooledSpec)
	// Stats reduces each row of logits (F32 [R, V]) to a row of dst
	// (I32 [R, StatCols]): top two over the first vocab columns, the count
	// of NaN, and, if hash is set, the hash of all V columns (else 0).
	Stats(dst, logits Buf, vocab int, hash bool)

	// Chain lays out b as one chain per span: span s has 1 + width rows,
	// where width is the columns of rest (rest may be none), tokens
	// first[s], rest[s][0], rest[s][1], ..., Start = committed length of
	// its slot + ahead. A span ends before its first negative token in rest;
	// its rows from there on are idle. Seq must be set; a span whose Seq is
	// negative is idle. LogitRows entries list the rows in order, all of them
	// if there is room for all, else the last row of each span. first I32
	// [Spans, 1], rest I32 [Spans, width]; both may be column views.
	Chain(b *Batch, c Caches, ahead int, first, rest Buf)
	// Shift lays out dst as the span-by-span successor view of src, for a
	// drafter that pairs the hidden state of a row with the token after it:
	// span s keeps kept[s] rows at positions Start+1.., whose tokens are
	// src's tokens one row on and next[s] in the last; rows keep their
	// indices, the rest go idle; Logit[s] is the last kept row (-1 if
	// none). Seq is src's, or -1 where kept[s] is 0, so that a Scatter by
	// Seq skips the span. dst has src's bucket of spans and rows, and
	// LogitRows = Spans.
	Shift(dst, src *Batch, kept, next Buf)
	// Accept applies a rule: per span with drafts in rows 1..Len-1,
	// kept[s] = 1 + accepted drafts (0 if idle) and next[s] = the target's
	// token after them. target I32 [LogitRows, >=1] holds in column 0 the
	// target's choice for each row of b, which must want all its rows in
	// order. kept, next I32 [Spans, 1].
	Accept(kept, next Buf, r RuleID, b *Batch, target Buf)
	// Commit makes kept[s] rows of each span part of its sequence: row
	// path[RowOff+j] (relative to RowOff) becomes position Start+j, for j
	// below kept[s]. They must be a path: the first one's parent is the
	// committed prefix, and each other one's parent is the one before it.
	// The slot's length becomes Start + kept[s], all other rows are
	// forgotten, what the caches hold of the path moves to the places of
	// its positions, and a Delta layer's state flips to the one at the last
	// border that was kept. No path (the zero Buf) means rows 0..kept[s]-1.
	// A Delta layer that ran over none of the span (a drafter's, in a
	// sequence that it does not draft for) is of no use in that slot until
	// Reset or Restore.
	// A span of more than MaxDraft+1 rows must be kept whole. Idle spans
	// and kept[s] = 0 leave their slot alone. kept I32 [Spans, 1], path I32
	// [Rows, 1].
	Commit(c Caches, b *Batch, kept, path Buf)

	// Reset empties a slot: length 0, zero states.
	Reset(c Caches, slot int)
	// SetPages writes pages into a slot's page table from entry first on.
	SetPages(c Caches, slot, first int, pages []int32)
	// Save copies a slot's recurrent states to a snapshot. The slot's
	// committed length must be a multiple of WindowTokens.
	Save(c Caches, slot, snapshot int)
	// Restore copies a snapshot to a slot and sets its length, a multiple of
	// WindowTokens. With no Delta layer, snapshot is ignored (-1).
	Restore(c Caches, slot, snapshot, length int)

	// Write copies src (dense rows, little-endian elements of dst's kind)
	// to dst. src may be reused when Write returns.
	Write(dst Buf, src []byte)
	// Read copies src to dst (dense rows) when it runs: the only way back to
	// the host. dst must stay alive until the ticket is waited for.
	Read(dst []byte, src Buf) Ticket

	// Capture records body as a program without running it. Write and Read
	// are not allowed inside.
	Capture(key GraphKey, body func(Queue)) (Program, error)
	// Run runs a captured program in order with the other operations.
	Run(p Program)
	// Err returns the sticky error after everything recorded has run.
	Err() error

	Waiter
}
