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
//
// # What the audits can and can't prove
//
// Package audit judges a run three times, since each way is blind to faults that
// another sees. A verdict is about the run that was recorded, on the arithmetic
// that it ran on, and about nothing else.
//
// Tokens proves, for every request under a rule that promises plain decoding's
// tokens, that each token is the target's choice after the tokens before it, and
// that the logits row behind it has the bits that reading the same text in a
// prefill gives: whatever batch, chunk, cache hit, preemption or draft came
// between. It does not prove that the model is right: a wrong weight, or a wrong
// kernel that both passes use, is wrong in both, and only the float64 oracle and
// the golden tests see it. It sees rows of rejected drafts only where requests run
// again. Under a rule that promises a distribution, it proves that drafts,
// decisions and rows repeat when the request runs alone, and that no deviation
// of the tokens from the target's distribution is larger than the report states;
// that the rule keeps the distribution is proved by enumeration, in package
// verify. Of simulated requests it proves that the token after the forced drafts
// is the target's, and claims nothing of the text.
//
// Counts proves that the numbers are consistent with one another, with what the
// client received, with the figures that the run reports, and, where requests run
// again, that drafts are those of the strategy and decisions those of the rule: a
// drafter that is wired wrong, or dead, is not what it is alone. Of a simulation it
// proves that every forced length is the documented draw for the schedule that was
// asked for; the schedule's mean and spread it tests with a stated level and
// smallest effect. It can't see that consistent numbers describe work that was
// never done, nor how good a drafter could be; drafts that depend on other requests
// (draft.Info.Shared) it can't repeat. Speeds it computes again from the records;
// wall time between steps has no record, and is only bounded by theirs.
//
// Work proves that the backend's counters of every step are those of the rows that
// its records claim, to the last multiply-add, key and logits row, simulated or not,
// and that drafting executed what its drafts cost. The counters are counted where
// the kernels run; whoever forges those forges the evidence. Work on the host
// (sampling, text) is in no counter: it shows in times, which are held to what the
// machine can do and, in pairs of neighbouring steps, to be independent of accept
// length; a difference below the effect that the report states is not seen.
// Drafting, and reading the weights, may not seem more than four times faster than
// this machine does them: a clock that is slow by less than that changes no ratio,
// and is not seen. Nothing of this is held against the times of another machine.
// Where requests run again, rows of rejected drafts must be those of the request
// alone.
//
// Which prompts were chosen, and whether a draft head was trained on them, no audit
// can say: acceptance is that of those prompts. A run from which a prompt was taken
// out everywhere is a run of the others.
//
// No audit can tell a run from a careful forgery of its records: the checksum of a
// segment finds damage, not intent. What it would take to forge is a run of the
// same model, since every row's hash must be that of its text.
package acceptance
