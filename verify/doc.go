// Package verify holds the acceptance rules: what decides, from the target's
// logits at k+1 rows, how many of k drafts stand and which token comes after
// them. A rule is one file that implements engine.Verifier and registers itself
// by name; [New] makes one, [List] describes them.
//
// # What a rule promises
//
// A rule either gives the tokens of plain decoding, or the distribution of plain
// decoding, and says which by Exact:
//
//   - greedy (temperature 0): a draft stands while it is the argmax of the
//     target's logits, after the penalties that plain decoding would apply at
//     that row. The tokens are those of plain decoding, for any drafter.
//   - coupled: a draft stands while it equals the token that plain sampling
//     with this seed would draw. Target noise is a function of seed, choice,
//     position and token id (Gumbel-max, package sample), so "would draw" can
//     be asked for every row at once. The tokens are those of plain sampling
//     with that seed, for any drafter. A drafter that draws with the same noise
//     is accepted more often than chance (coupling by common random numbers,
//     as in arXiv:2408.07978), but need not.
//   - rejection: speculative sampling after Leviathan, Kalman, Matias 2023
//     (arXiv:2211.17192) and Chen et al. 2023 (arXiv:2302.01318). A draft x
//     drawn from q stands with probability min(1, p(x)/q(x)); the first that
//     does not is replaced by a draw from the residual max(p-q, 0),
//     normalised; if all stand, the bonus token is drawn from the last row.
//     The distribution is that of plain sampling; the tokens for one seed are
//     not. It accepts as many drafts of one row as any rule can that keeps the
//     distribution.
//
// A draft may be a tree: several tokens may follow one row, as alternatives. The
// rules walk down it: greedy and coupled to the child that is the target's own
// token, rejection by trying the children of a row in order, each against what
// the ones before it have left of the target's distribution. That keeps the
// distribution for certain drafts, for siblings drawn alike (SpecInfer,
// arXiv:2305.09781) and for siblings drawn without replacement (EAGLE-2,
// arXiv:2406.16858), if each comes with the distribution that it was drawn from.
// Block verification sees the longest
// branch or, where tokens were drawn, that of the first ones. A chain is the tree with one
// branch, and nothing here treats it apart.
//
// Two rules promise neither, for research: typical (typical acceptance, Cai et al.
// 2024, arXiv:2401.10774) and threshold accept drafts that the target finds likely
// enough. They say so by a method Lossy (engine.Lossy), records and tables are
// stamped with it, and Exact is false for them at any temperature. How a draft was
// drawn does not matter to them; the token after the drafts, and every token of a
// step without, is plain decoding's, so that at the limits of their settings they
// are coupled, which the tests hold them to. Rules with settings are named with
// them, "typical:epsilon=0.2" ([Settings]).
//
// At temperature 0 coupled and rejection are greedy. The greedy rule refuses
// requests that sample, instead of quietly committing the argmax ([Serves]).
//
// # One row, one history
//
// Every row is processed as plain decoding would process it: penalties see the
// prompt, the output, and the drafts before the row, and a grammar is where those
// tokens have brought it; then temperature, top-k, top-p, min-p. The draft's q must have been made by the same processing of the
// drafter's logits (engine.Draft), or be nil for a draft that was not drawn at
// random. A nil q is one-hot: such a draft stands with probability p(x), which
// keeps the distribution whatever the drafter does.
//
// # Exactness in floating point
//
// Distributions are float32 and sum to 1 only nearly. The rejection rule works
// with p/sum(p) and q/sum(q) in float64, where p/sum(p) is what [sample.Sample]
// draws from in a plain step. The output is distributed as p/sum(p) to within
// float64 rounding: package tests enumerate vocabularies of up to 8 tokens at
// depth 3 through the production rule, integrating over its uniforms, and bound
// the total variation by 1e-12. The identity needs q to be the distribution that
// the draft was in fact drawn from; a q that gives its own draft no mass is an
// error, since no drawing could have given it.
//
// # Noise
//
// The uniform for draft i comes from the Verify stream and the draw for the
// replacement after a row from the Recovery stream, both keyed by the committed
// length at the step's start and the draft or row. Draft noise has a stream of its own. Sharing any
// two of them biases the output, although each token alone looks right; a test
// with the real streams, over several consecutive steps, holds that down, and
// shows that it would notice.
//
// # Simulated acceptance
//
// [Simulate] puts a draw in the place of a rule's decision, so that engines can
// be compared at the same accept length. Nothing else changes: the same drafts
// are made, the same rows computed, the same rule run, and what it decided is
// kept beside what was forced (engine.Simulation). The tokens that come out are
// the drafts themselves and then the target's own choice at the place that was
// forced, with the noise of a step that starts there, so that length=1 gives
// plain decoding's tokens. The draw is one number of stream sample.Simulate for
// each sequence and step; [SimulatedAccepted] recomputes it from a record. A
// value that can't be honoured is an error and never clamped. Exact is false for
// every simulated rule, and the engine stamps its records.
//
// # Writing a rule
//
// Implement engine.Verifier and register in init; with settings, as a struct that
// makes the rule ([Settings]). Verify must be a function of its argument: no clock,
// no generator with a state, no memory of earlier steps. A rule that promises
// nothing of its output says so by a method Lossy. Package rulestest checks the
// contract for any rule, and its example_test.go is a complete one in a few lines;
// for a rule that keeps the distribution, enumerate_test.go and tree_test.go prove
// it, where its noise can be set.
package verify
