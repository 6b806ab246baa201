// Package kerneltest is the conformance suite of [kernels.Backend]: what every
// backend must do, written once and run by each of them.
//
//	func TestConformance(t *testing.T) {
//		kerneltest.Run(t, func(t *testing.T) kernels.Backend { return cpu.New(...) }, kerneltest.Options{})
//	}
//
// # Two questions
//
// Is it right? Each operation runs on the backend and on kernels/ref with the
// same inputs (numbers that BF16 holds, so that both start equal), and the
// result must be near the float64 one: ‖out-ref‖ / ‖ref‖ below a bound that
// stands beside the test and follows from the roundings that the operation is
// allowed.
//
// Is it the same? The contract of the engine is that a row is a function of its
// sequence alone. The suite runs a sequence one row at a time, and then again in
// every other way that an engine may choose: chunks, verifications with
// rejected tails, batches with other sequences, idle spans and idle rows (filled
// with NaN), other slots, other pages, shared pages, restored snapshots,
// trees, captured programs. Each time every row must come back bit for bit.
// Lengths are chosen around the borders of windows, pages and splits.
//
// At the end a toy model (an attention layer, a Gated DeltaNet layer, an MTP-like
// drafter with a cache of its own) decodes speculatively in one captured program
// that the host only replays, and must emit the tokens and logit hashes of plain
// decoding.
//
// A backend that keeps float64 rounds only where its numbers are read, so two
// orders of summation may differ by one unit of the read kind there;
// Options.Float64 allows that one unit.
package kerneltest
