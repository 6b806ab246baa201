// Package audit holds the three audits of a run. Tokens asks whether the output
// is what plain decoding gives, counts whether the numbers add up and are those
// of the declared mode, work whether every step did what it claims. Each is
// blind to faults that another sees, and says so in its report; the comment of
// package acceptance says what each can and can't prove.
//
// # A case
//
// A Case is what was asked (Request), what was recorded (a stream, read as often as
// needed), what was received, what the run reports of itself, and a Lab: the honest
// engine, on which requests run again. The audits know nothing of how a run could
// be wrong. They stream: a request's records are held while it runs, so memory
// grows with the requests in flight and their tokens, not with the length of the
// run; of each request that has ended a few numbers are kept, beside what was asked
// and received.
//
// # Tokens
//
// Prompt and output are read in prefill chunks (Lab.Force), once for requests of the
// same tokens. The row before each output token must have the hash that the record
// has, and the request's rule, asked for a step without drafts, must choose the
// token there, penalties, grammar and noise included. Runs of up to 20,000 tokens
// are decoded plainly too. Requests under rules that promise a distribution run
// again, and their tokens are held against the distribution by the randomised
// probability integral transform and the mean of log p. A lossy rule promises
// nothing: its requests run again too, its drafts, decisions and rows must repeat,
// and the audit then says that it can't check the tokens, since there is nothing
// that they must be. Counts and work are those of any rule.
//
// # Running again
//
// Lab.Again runs a request alone, along the tokens that it received: a rule commits
// at each position what the run committed there, and keeps beside it what the real
// rule decides. So each step of the run has a twin that saw the same tokens and
// nothing else: drafts, decision and the hashes of all rows, rejected ones too, must
// be equal. It works for simulated requests as well, and after preemptions. Large
// runs take a share of the requests, chosen by a hash of their ids.
//
// # Statistics
//
// What is deterministic is compared, not tested: simulated lengths are recomputed
// from the documented stream, counters from the widths. Tests say at which level
// they judge and what they would have seen. All tests of an audit together call an
// honest run wrong with a probability of at most 1e-6. Mixture is valid at any
// stopping time, which matters since a run ends when it has enough tokens; SPRT is
// Wald's test, for streams that should stop early.
package audit
