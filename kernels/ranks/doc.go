// Package ranks runs one model on several backends of one process, as tensor
// parallelism runs it on several devices: each rank holds a part of every
// matrix weight, computes its part of every product, and the ranks exchange
// what they computed.
//
// # What is split
//
// Products are split over their output rows and never over K: every output
// element is one accumulation chain on one rank, exactly the chain of a single
// rank, and gathering the outputs moves bits without adding any. So n ranks
// give the bits of one, where ranks that split K and add partial sums would
// not (DESIGN.md, section 3a, rule 5).
//
//   - Matrix weights: rank r keeps its rows, near n*r/size to n*(r+1)/size with
//     borders that suit packed panels; a paired weight is split in pairs.
//   - Embeddings are matrix weights: each rank looks up the ids whose rows it
//     keeps, and whole rows are exchanged. A tied head is held once.
//   - Vectors, taps and tables are replicated, and so are the caches:
//     attention, Gated DeltaNet, norms and statistics run on every rank over
//     the gathered activations.
//
// # Exchanges
//
// A product flushes the rank's queue, brings its columns to the host, meets
// the other ranks and writes their columns to its own memory. At each meeting
// all ranks must be at the same operation, over the same tensor, with the same
// shape: ranks that were led apart by what their engines decided find out
// here. The first failure of any rank (a divergence, an error of its backend, a
// panic, a rank that went away or did not come in time) becomes the error of
// all of them, and no rank waits for ever. Exchanges allocate nothing once
// their buffers have grown.
//
// # Lock step
//
// Every rank is driven by a goroutine of its own, which must make the same
// calls in the same order as the others: the same loads, allocations and
// operations. Run and Group.Run start such goroutines and join their errors.
// Engines do the rest: engine.Config.Ranks takes a *Backend.
package ranks
