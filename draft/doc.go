// Package draft holds the draft strategies, a file each.
//
// A strategy is a configuration struct that registers itself under a name (in
// init), fills in its defaults, checks itself (Validate) and makes a drafter for
// an engine (Provision). The drafter proposes tokens that may follow a
// sequence's pending token; the target verifies them, so a drafter can only cost
// or gain speed, never change what comes out.
//
// To add one, write one file: the configuration, the registration, and a type
// that implements engine.Drafter:
//
//   - Propose fills in at most K tokens for each sequence that asks;
//   - Committed tells what entered the target's caches, in order of position:
//     the only way that a drafter learns, so that rejected tokens never reach
//     its state;
//   - Release forgets a sequence.
//
// A drafter that draws its tokens at random gives the distributions with them
// (engine.Draft.Probs), made from its logits by the request's own processing
// (sample.Sampler.ProcessTo, into memory of its own) and drawn with noise of
// purpose sample.Draft; the rejection rule needs the very distribution that a
// token was drawn from. A drafter that guesses without chance leaves Probs nil.
// Where the sequence's rule says that it draws with the target's noise by position
// (TargetNoise, of the coupled rule), a drafter may draw with the same
// (sample.Params.Coupled), and is then right more often; it leaves Probs nil too.
// chain_sample.go does both.
//
// A drafter that keeps caches on the device implements engine.DeviceDrafter (see
// chain.go). example_test.go is a complete strategy in a few lines; package
// strategytest checks the contract for any strategy.
//
// Strategies here: none (plain decoding), ngram (prompt lookup), suffix (suffix
// trees), mtp (the model's own multi-token-prediction layer), eagle3 (EAGLE-3
// heads), eagle (EAGLE heads of the first version, as chains or trees), mtp-tree and
// eagle3-tree (dynamic trees, tree.go), medusa (Medusa heads, as chains or trees), dflash
// and dspark (block-parallel heads, the latter with a Markov head and a confidence),
// model (a second language model), layerskip (the target's first layers; both
// recursive.go), cascade (several in a row), remote (a drafter in another process). Heads are
// files beside the model or in a directory (checkpoint.OpenHead) with networks of their own
// (model.Eagle, model.Eagle3, model.Medusa, model.DFlash, model.DSpark). Those that feed on their own hidden
// state share one chain of draft steps (chain.go), and all share the way from asks
// to drafts (steps.go).
package draft
