// Package outside audits an engine that is not ours through what it says to a
// client: an OpenAI-compatible server behind a URL, or the result file of a
// benchmark. Nothing that the server says of itself is taken as true; it is held
// to what the client received, to identities that bind its figures to each
// other, and to a model of the same weights that reads the output again.
//
// An audit has two stages. Collect talks to the server: it finds the dialect
// (vLLM, SGLang, llama.cpp, or only the OpenAI surface), reads the counters,
// sends greedy requests at several levels of concurrency with speculation as
// served and, where a request can say so, without it, notes when every piece of
// a stream arrived, and reads the counters again. Everything else is pure: Tokens,
// Counts and Work take the Evidence and give the reports of package audit.
//
// # What binds the figures
//
// With R requests, T tokens received, V verification steps, P drafts offered, C
// drafts accepted and k the draft length, an honest server has
//
//	C <= P <= k V
//	T  = R + V + C - X
//
// where X are accepted tokens behind an end, at most k a request: a request's
// first token comes from its prompt, and each step yields its accepted drafts and
// one token more. A counter of the steps that had drafts is at most V. The stream
// is a second witness: a server that sends a step's tokens in one piece sends at
// most R + V pieces.
//
// # Near ties
//
// Two engines with the same weights round differently, so where two logits are
// close either may win. A token that is not our first choice is a near tie when
// its logit is at most Options.NearTie units below the first, a unit being the
// spacing of BF16 numbers at the first one's magnitude; otherwise it is wrong.
// Each position is judged given the server's own tokens before it.
//
// # What can't be seen
//
// Each report lists in Blind what its audit could not see. In general: work that
// was skipped without a trace in time, counters that were made up to agree with
// the tokens and with the stream, and accept lengths of a simulation that emits
// the target's own tokens, unless the declared length is known. See Visible.
package outside
