// Package rulestest checks that an acceptance rule keeps the contract of
// engine.Verifier. [Run] is the whole test of a new rule: it puts the rule to work
// on a small model, with every logit processor, behind drafts of every kind, and
// looks at every verdict.
//
// What is checked, for each set of parameters that the rule serves (temperature 0
// and above, top-k, top-p, min-p, penalties, logit bias, grammars, all of them at
// once) and each kind of draft (none, all right, none right, right up to a place,
// tokens behind the end of the text, trees, and chains and trees that are drawn at
// random, with their distributions):
//
//   - a verdict accepts drafts that follow each other from the pending token, and
//     says rightly how the token after them came about;
//   - accepted drafts and the next token are ones that plain decoding could say at
//     their rows, processors applied with the drafts before the row as history; at
//     temperature 0, the ones that it does say, unless the rule is lossy;
//   - Verify is a function of its argument: again, from another instance, or after
//     other calls, it decides the same, and it leaves the draft as it was;
//   - a rule that needs no logits gets none;
//   - what the rule promises. If Exact, the tokens are those of plain decoding with
//     the same seed, whatever the drafts, right ones are all accepted and wrong ones
//     are not. If not, and it is not lossy (engine.Lossy), they are distributed as
//     plain sampling: the texts of many seeds, several steps each, are counted, and
//     held to the probabilities by a chi-square test. It takes coarse errors; a proof
//     is by enumeration, as the tests of package verify have it. A lossy rule has to
//     say that it is not Exact, at any temperature.
//
// What is not checked is whether the rule accepts much.
package rulestest
