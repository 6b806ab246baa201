// Package metamorphic proves the central claim by experiment: speculation,
// batching, chunking, threads, kernel sets, preemption and prefix caching change
// the speed of a run and never its tokens or the bits of its logits.
//
// A seed makes a Program: requests with their prompts, strategies and sampling
// parameters, and the options of the engine that will run them. The reference
// for each request is that request alone in an engine of default options,
// decoded plainly one token at a time. Run compares every token and the hash of
// every committed logits row. Because random weights make text that no real
// drafter can guess, programs also use a drafter that knows the reference and
// errs at random places, so that every accepted count is met at every kind of
// position; Coverage counts what was met, and a suite that met none of a kind
// proves nothing and fails.
package metamorphic
