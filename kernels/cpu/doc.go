// Package cpu is the backend that runs on the processor: BF16 weights and
// activations, FP32 accumulators, memory off Go's heap and one of the kernel
// sets of kernels/cpu/vec (AVX-512-BF16, AVX-512F, AVX2 or portable Go, which
// give the same bits).
//
// # How a pass runs
//
// The queue records operations into lists of small structs that are reused from
// pass to pass, so that a pass in its steady state allocates nothing. Nothing
// runs while it is recorded. When a ticket is waited for, all workers walk the
// same list (the caller is worker 0, the others are goroutines that spin for a
// moment between lists and then park), each doing its share of every phase of
// every operation, with a spin barrier between phases. Operations on tables run
// on worker 0 alone, and neighbours of that kind share one barrier. Who does
// which share never shows in the bits: shares are whole outputs, and each
// output is one chain of additions in an order that belongs to its row.
//
// # Layouts
//
// Weights are repacked at load into panels of 64 output rows,
// [N/64][K/2][4][16][2], so that a lane of a vector is an output row and memory
// is read strictly forward. Gate and up of a SwiGLU are interleaved in groups
// of 32 rows, so that the worker that has one has the other. Keys of a page lie
// as such panels with the 64 keys as outputs and the head dimension as K; values
// lie with the channels as outputs and the keys as K, so that both products of
// attention are the matrix primitive. A Delta layer keeps per slot two banks
// (state at a window border, and the records k, u, G of the window after it);
// Commit chooses the bank.
//
// # What makes rows independent of their neighbours
//
// Keys enter their split at their absolute position. A row's softmax covers its
// own keys alone; the probabilities of later keys in its tile are zero, which
// leaves a chain that started at +0 as it was except for the sign of a zero,
// and that sign is made canonical at the end. Where a page holds a value that
// is not finite (zero times infinity is not zero), each row gets a copy of the
// page with the keys that it does not see set to zero. The delta rule advances
// row by row with the arithmetic of the window form in prefill, decode and
// verification alike.
//
// # Bad use
//
// A shape that does not fit is found while recording, a bad table entry (token
// id, page, position, slot) while running. Either becomes the queue's sticky
// error, which names the operation and the tensor; later operations are
// skipped.
package cpu
