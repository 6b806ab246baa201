// Package kernels is the seam between model code and the machines that run it.
//
// Above the seam, model code records operations on a [Queue] over opaque
// handles: [Buf] for activations and tables, [Weight] for parameters, [Layer]
// for a layer's cache. Below it, a [Backend] alone knows where the bytes live,
// what type they have and when they are computed: kernels/ref keeps float64
// and is the judge of the others, kernels/cpu keeps BF16 and FP32 in huge
// pages and runs Go assembly, kernels/cuda keeps them on a GPU, and
// kernels/fakedev wraps another backend to prove that nothing above the seam
// touches memory behind it. No host pointer crosses the seam except through
// Queue.Write and Queue.Read, and nothing is allocated while a forward pass is
// recorded.
//
// # One unit of work
//
// A span is a run of consecutive tokens of one sequence that starts at an
// absolute position. A prefill chunk, a decode step (one row) and a
// verification (one pending token and k drafts) are spans; a [Batch] is a list
// of them. The tables of a batch live in backend memory, so that a device can
// rewrite them between steps (Queue.Chain, Queue.Shift, Queue.Accept,
// Queue.Commit) and run draft, verification, acceptance and redraft as one
// captured [Program] without the host.
//
// # Rows never see their neighbours
//
// The result of every operation for one row is a function of that row's
// sequence alone: never of the other rows of the batch, the chunk that the row
// arrived in, the tile or thread that computed it, or the bucket that the
// program was captured for. That is the contract on which the proof of
// speculative decoding rests; kernels/kerneltest holds every backend to it.
//
// Three lengths anchor the arithmetic at absolute positions. Keys are read in
// splits of [SplitTokens]; within a split softmax is computed afresh and the
// splits are combined in ascending order. KV memory comes in pages of
// [PageTokens]. Gated DeltaNet works in windows of [WindowTokens]: the
// committed state is the state at the last window border, and the tokens of
// the open window keep records (k, u, G), so dropping a rejected draft is
// dropping its records. A span that crosses a border writes the new state
// beside the committed one, and Queue.Commit flips between the two only when
// the border itself was kept.
//
// # Errors
//
// Load, Alloc and Caches return errors at once. Operations on a queue are
// deferred: the first error sticks to the queue, names the operation, and
// comes back from every later [Ticket.Wait] and from Queue.Err.
package kernels

// Anchors of the arithmetic, in tokens. They are properties of the engine and
// never tuned per batch: changing one changes the bits of every result.
const (
	// PageTokens is the number of positions in one page of KV memory.
	PageTokens = 64
	// WindowTokens is the length of a Gated DeltaNet window.
	WindowTokens = 64
	// SplitTokens is the number of keys in one attention split.
	SplitTokens = 512
)
