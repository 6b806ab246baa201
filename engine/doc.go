// Package engine runs sequences through a model, one speculative step at a time.
//
// # The step
//
// An Engine owns a loaded model, its caches and a scheduler. Each Step asks the
// scheduler (engine/sched, a pure core without clock or I/O) for a plan: which
// sequences decode, with how many drafts at most, and which chunks of which
// prompts are read, within a token budget. Then
//
//  1. the drafters propose for the decoding sequences,
//  2. the target runs one batch: a verification span (pending token and drafts)
//     for each decoding sequence, a prefill chunk for each newcomer. A plain
//     decode step is a verification without drafts; there is no other path,
//  3. each sequence's rule gives its verdict: how many drafts stand, and the
//     token after them,
//  4. the caches commit the rows that were kept and forget the rest,
//  5. the drafters are told what was committed, and a Record per sequence goes
//     to the Recorder.
//
// # What is exact
//
// Because no kernel's result for a row depends on the other rows (package
// kernels), the logits at a position are the same bits whether its token came by
// plain decoding, in a verification or in a prefill chunk, in whatever company.
// With the greedy and coupled rules the tokens are therefore those of plain
// decoding, and so is the hash of each committed logits row, which every record
// carries. Preemption recomputes a sequence from its tokens and so changes
// nothing; a prefix-cache hit brings back the same bits that computing would.
//
// # Interfaces
//
// The engine defines what it consumes: Drafter (and DeviceDrafter, for drafters
// with caches behind the seam), Verifier and Recorder. Packages draft, verify
// and acceptance implement them. A drafter learns only through Committed, so a
// rejected token can't leak into its state.
//
// # Several ranks
//
// Where the weights of one model lie on several backends (kernels/ranks), every
// rank runs an Engine of its own in lock step with the others: see Ranks.
//
// An Engine is used from one goroutine. A sequence that fails (its drafter or
// rule returns an error, its logits are not numbers) ends alone, with its error;
// an error of the backend ends the engine.
package engine
