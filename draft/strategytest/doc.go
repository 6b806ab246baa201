// Package strategytest checks that a draft strategy keeps the contract of
// engine.Drafter. [Run] is the whole test of a new strategy's manners: it runs
// the strategy in a real engine, on a small model with random weights, alone and
// in company, under chunked prefill, preemption and prefix-cache hits, greedy and
// sampled, and looks at every call.
//
// What is checked, in each case:
//
//   - the defaults are valid, and Provision makes drafters that do not share
//     state;
//   - a draft has at most K tokens, all of them in the vocabulary; if it has
//     distributions, there is one for each token, over the whole vocabulary,
//     without NaN or negative numbers, and gives mass to its token;
//   - the sequence that a drafter is shown is left as it was;
//   - the same calls give the same drafts: a drafter has no clock and no
//     generator of its own;
//   - tokens and logits hashes of every request are those of plain decoding.
//     The rule sees to that whatever a drafter proposes, so a difference means
//     that the drafter touched memory that is not its own: another sequence's
//     slot, the target's caches, the step's tables.
//
// What is not checked is whether drafts are any good. Acceptance is a matter for
// an experiment.
//
// Output of a model with random weights can't be guessed, so each case also runs
// guided: behind the drafter's back its drafts are replaced by right ones, up to
// a place that differs from step to step. Every accept length from 0 to K comes
// up that way, for a strategy that never guesses right as well. A drafter learns
// what stands from Committed alone, so it must not mind.
//
// The model has recurrent layers and a multi-token-prediction module, for
// strategies that draft with it. Host drafters and device drafters are checked
// alike.
package strategytest
