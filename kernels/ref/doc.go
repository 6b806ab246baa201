// Package ref is the judge of the other backends: the operations of
// [kernels.Queue] in float64, in the most obvious form that the definitions
// allow, on gorgonia.org/tensor.
//
// # What it is for
//
// A backend that rounds can be wrong in two ways: its kernels compute something
// else, or they compute the right thing with more error than they should. The
// ref backend is the ground that both are measured from. It rounds nothing:
// BF16 and F32 buffers alike keep float64, weights keep the file's value, and
// a number is rounded only where it leaves through Queue.Read or enters Stats,
// whose results are defined on float32 logits.
//
// # Other forms than theirs
//
// Where the engine's kernels use an arrangement that was chosen for speed, ref
// uses the textbook one, so that an error of the arrangement can't hide in both:
//
//   - attention is one softmax over all keys of the row, with no splits;
//   - Gated DeltaNet is the step recurrence on an explicit state,
//     S = exp(g) S; u = beta (v - Sᵀk); S = S + k uᵀ; o = Sᵀq,
//     where the others keep records of a window of 64 and solve a triangular
//     system against the state at the window's border;
//   - a state is kept after every row of a span, so a partly kept span simply
//     continues from the state after its last kept row, at a border or not;
//   - rows follow their Parent, so trees need no second path;
//   - experts and keys are chosen by sorting all of them.
//
// Every row of a matrix product is computed alone, by MatVecMul: the tensor
// package gives other bits for the same row in another batch.
//
// # A strict judge
//
// The backend also checks what the others need not: that a span starts at its
// slot's committed length before a recurrence runs over it, that positions agree
// with depths, that a page is set before it is read, that a snapshot is
// restored at the length at which it was saved, that handles are this
// backend's own and alive. Each of these becomes the sticky error of the queue.
//
// It is slow, but not so slow that it can't be used: a model of ten million
// parameters decodes about a hundred tokens a second on two cores.
package ref
