// Package acceptance holds the evidence of a run: its step records on disk, the
// statistics that are computed from them and from nothing else, and the
// comparison of a run's tokens and logits hashes with plain decoding.
//
// # Records
//
// The engine hands one engine.Record per sequence and step to a Writer, which
// stores them as Parquet in closed segments (records-000001.parquet, ...). A
// segment is written under a temporary name, with its footer, synced and then
// renamed, about once a second: whatever happens to the process, at most the
// last two seconds are missing and everything before is readable. Each segment
// carries the schema version, the run's id and its provenance. SCHEMA.md
// describes every column.
//
// A Reader streams a run's records in order, and refuses what it can't vouch
// for: another schema version, a missing column, a damaged segment, segments of
// different runs, steps out of order.
//
// # Counts
//
// Accepted drafts, accept length (accepted + 1) and emitted tokens are
// different things, and different Go types (package engine); Stats keeps them
// apart. Acceptance by position is unconditional: the share of verifications
// with at least i drafts in which drafts 1..i were all accepted; the conditional
// form divides by those in which drafts 1..i-1 were.
//
// # Statistics
//
// Everything is computed in one pass, from records in their order; the memory
// grows with requests, prompts or windows, not with records. Group keeps Stats by
// point, class, prompt or strategy; Counts.Positions gives acceptance by position
// with Wilson intervals; Windows follow acceptance over steps or along the output;
// Speedups set the speed-up that acceptance and measured costs give beside the
// measured one; PairedBootstrap compares two points, prompt by prompt. Real and
// simulated acceptance are never summed: Group.Mixed and the others refuse.
//
// The figures are defined to the last digit: sums are of integers, or of floats in
// a stated order, and the bootstrap draws from SplitMix64. So another program
// computes them again from the Parquet columns; the notebooks do.
//
// # Tokens
//
// Collector rebuilds from records what each request emitted and the hash of the
// logits row behind every token. Compare sets that against plain decoding:
// the first difference of token or hash is the verdict.
package acceptance
