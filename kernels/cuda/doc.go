// Package cuda is the backend for NVIDIA GPUs: a [kernels.Backend] on the CUDA
// driver and NVRTC, which it reaches through purego (see the package driver), so
// that it is in every Linux binary and needs neither cgo nor a CUDA toolkit to
// build. [Open] fails with a plain error, saying what it looked for, where there
// is no driver, no GPU, or no compiler; on other systems, and with the build tag
// nogpu, it always does.
//
// # Kernels
//
// The sources in src are embedded, compiled by NVRTC for the device's generation
// when a backend is first opened there, and kept as cubins in the user's cache
// directory under the hash of source, options and architecture. A cubin serves
// all devices of its major compute capability (sm_80, sm_90, sm_100, sm_120), so
// one generation of cards has one set of bits. The argument structs of src are
// mirrored in args.go; their sizes are compared when a source is compiled.
//
// Results are defined per row. A matrix product walks K upwards in MMA steps of
// 16, whatever the tile, and no sum is split: where a tile's K is shared between two
// blocks, the second goes on from the accumulators of the first. matmul.cu serves every
// generation; matmul_hopper.cu, for compute capability 9.0 (which is compiled as sm_90a),
// has the copy engine, wgmma and kernels that start early, and gives the same bits; attention handles one row and head per block over splits
// of 512 keys at absolute positions; Gated DeltaNet handles one span and head per
// block, row by row. Reductions are trees of a fixed shape over 32 lanes or 128
// threads. Sources are compiled without contraction (--fmad=false): a fused
// multiply-add stands only where fmaf is written.
//
// # Memory
//
// Weights are BF16 row-major, vectors FP32. A Delta layer of a slot has two
// states; the one at the border at position B lies in half (B/64) mod 2. The
// committed length therefore says which is current: a span that crosses a border
// writes the other half, and committing, or not, is a matter of the length
// alone. Records of the open window and inputs of the convolution lie in rings
// by position. Every allocation has a purpose and counts against a budget; one
// that does not fit is refused with [kernels.ErrOutOfMemory] and harms nothing else.
//
// # The queue
//
// Operations are launched at once on one stream and run behind the host.
// Lengths, positions and page tables are read from the tables in device memory,
// never by the host, so a captured program is a CUDA graph that replays on
// whatever the tables hold then. What a kernel finds wrong in a table (a slot, a
// page, an index out of range) it notes in pinned memory; the note becomes the
// queue's error at the next wait. Launch parameters lie outside the Go heap, and
// recording an operation allocates nothing.
package cuda
