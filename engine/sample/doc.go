// Package sample turns a row of logits into a token: penalties, temperature,
// the filters, and the random streams. Of the engine it imports nothing but
// package grammar, which is about texts alone, so that plain decoding, drafters,
// acceptance rules and tests share one definition of "the distribution of the next
// token".
//
// # One function of its inputs
//
// The distribution at a row is a function of the logits, the request's [Params]
// and the tokens before the row, and of nothing else. Arithmetic is float64 with
// every rounding written out (the compiler may not fuse), exponential and
// logarithm are this package's own (math.Exp has other bits on processors
// without FMA), sums run in a fixed order, and ties go to the lower token id.
// So Process on row i of a verification, with the drafts before it, gives the
// bits that plain decoding gives after pushing those tokens.
//
// # The pipeline
//
// The order is bias, penalties, grammar, temperature, top-k, top-p, min-p, each
// over what the one before has left, renormalised:
//
//   - Bias is added to the logits of the tokens that it names.
//   - Repetition (over prompt and output): a positive logit is divided by the
//     penalty, another multiplied. Then frequency times the count in the output
//     and presence once are subtracted. This is vLLM's apply_penalties, which
//     took the first from Keskar et al. 2019 (arXiv:1909.05858).
//   - The grammar drops the tokens after which no continuation of the output
//     matches its pattern (package grammar).
//   - Temperature divides.
//   - Top-k keeps exactly k tokens: of equal ones, those of lower id. (vLLM
//     keeps all that equal the k-th.)
//   - Top-p (Holtzman et al. 2019, arXiv:1904.09751) keeps the shortest prefix,
//     by falling probability, whose mass reaches p.
//   - Min-p (arXiv:2407.01082) drops what is below min_p times the largest.
//     vLLM's first engine applied it last too; since its rewrite, min-p comes
//     before top-k and top-p. The two differ only when top-p is on as well.
//
// A NaN, a positive infinity, or a row without any finite logit is an error:
// see [RowError]; so is a row of which the grammar leaves nothing, see
// [GrammarError].
//
// # Random streams
//
// All noise is Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
// numbers: as easy as 1, 2, 3"), a function of a key and a counter, so a draw
// has no state that could be lost in a preemption or shared by accident. The
// key is the request's seed. The counter holds, in four words that never
// overlap, an index, a length, the choice (which of n answers), and the purpose
// with an offset: see [Params.Stream]. Two draws with different names never
// read the same word.
//
// Three purposes are keyed by the committed length at the step's start and the
// offset within the draft: [Draft] noise, which drafters sample from; [Verify]
// noise, the uniforms of acceptance; [Recovery] noise, which picks the token
// after the accepted drafts. The length at the step's start grows by at least
// one in every step, so noise that once had a say in where a draft was cut is
// never drawn again. Keying by position alone would redraw it at the next step
// and bias rules that look along the draft.
//
// The fourth, [Target], is keyed by the position of the token that is chosen
// and nothing else: the coupled rule takes the argmax of log p + Gumbel noise,
// one noise value for each token id. A plain run, a speculative one, and a
// drafter that means to guess the target's draw all see the same noise there,
// on purpose. See [Sampler.CoupledSample].
//
// The fifth, [Simulate], decides nothing about a real output: it draws how many
// drafts a simulated verification accepts, one number for each sequence and
// step, keyed by the committed length at the step's start.
//
// # Memory
//
// A [Sampler] belongs to one sequence and holds little more than the tokens that
// penalties look at and the state of its grammar; the compiled grammar is shared. The large buffers, a few floats for each token of the
// vocabulary, are in a [Workspace], which the sequences of an engine share. In
// the steady state nothing is allocated for a row.
package sample
