// Package sched decides what each step of the engine computes: which sequences
// take part, how many tokens of a prompt, how many drafts, in which slots and
// pages, and who must wait or give way. It is a pure core in the manner of
// etcd's raft: no clock, no I/O, no goroutine, no randomness, no order of a map
// that reaches a result. What happens is told to it by calls, and what to do is
// what it returns. The same calls give the same plans on every machine, so a
// trace of a run can be replayed, and a bug arrives as a text file.
//
// # Use
//
// The engine loop owns time, devices and channels, and turns around the core:
//
//	core, err := sched.New(cfg)
//	...
//	core.Submit(request)                 // at any time, as is core.Cancel
//	for core.Len() > 0 {
//		plan := core.Plan()
//		record(plan.Before)              // Reset, SetPages, Restore
//		results := compute(plan.Items)   // draft, forward, verdict, commit
//		record(plan.After)               // Save
//		err := core.Commit(results)
//	}
//
// A plan's slots, pages and snapshots are the core's until its next plan.
// [Tracer] is a core that writes all this as text, and [Replay] checks a text.
//
// # Terms
//
// A sequence's tokens are known as soon as they were submitted or sampled, and
// committed once their results are in the caches. In prefill a sequence has
// known tokens to compute, in chunks. The chunk that ends them gives the next
// token, and the sequence decodes: then one known token is not committed, the
// pending token, which is row 0 of each of its spans, with drafts behind it. A
// preempted sequence is in prefill again, from position 0 or a prefix hit, and
// its known tokens are the prompt and its output so far. Nothing distinguishes
// the two kinds of prefill, nor need the kernels: rows are functions of the
// tokens before them.
//
// # A step
//
// The rows of a step are bounded by Config.MaxBatchTokens. They are given out in
// this order:
//
//  1. Each decoding sequence has its pending token: decoding never pauses for
//     prefill. A sequence is admitted only if there is a row and a span for it
//     in every step to come, so this always fits.
//  2. Prefill has the rows that drafts do not want, and its share of all
//     (Config.PrefillShare) even if they do: newcomers get their first token soon, and a long prompt does
//     not stop speculation. Chunks go to running sequences in order of
//     admission, then to newcomers.
//  3. Drafts have what is left, spread evenly over the sequences, since each
//     further draft of one is less likely to be kept than the first of another.
//     A step yields one token more than it accepts, so a sequence never drafts
//     beyond its MaxLen; and it drafts no further than its pages reach.
//
// Results do not depend on any of this, as kernels promise; time does.
//
// # Memory
//
// A sequence is admitted with the pages of all its known tokens, and only if
// there is one more to spare for each resident sequence that can still grow,
// itself included, and if the outputs to come are expected to fit: those of
// requests that cannot stop early are known, others are judged by the outputs
// that ended before (see forecast). Without that, a full memory would thrash.
// Decoding sequences take pages as they need them. When there is none, the
// prefix cache gives up what nobody uses; then, of the sequences of the lowest
// priority, the one that was admitted last is preempted: its pages and slot are
// taken back, and it waits where its arrival says. Nobody is admitted in a step
// that preempts. Submit refuses what could not run alone. So the sequence of the
// highest priority that was admitted first always goes on, and with first come,
// first served that is the oldest one: within a priority everybody finishes.
//
// Preemption recomputes. Full pages stay in the prefix cache while there is
// room, so that a preempted sequence may find them again.
//
// # The prefix cache
//
// Full pages enter the cache as they are committed, keyed by known tokens only:
// rows behind a stop are in no key. A sequence that finds its page there already
// moves to that one; the plan rewrites its page table.
//
// With recurrent layers, a hit needs a snapshot at its end (see package cache).
// Prefill saves at two places, and its chunks are cut there: the deepest border
// that the same prompt could use again, and the border where the prompt leaves
// what was seen before, as Marconi does (Pan et al. 2024, arXiv:2411.19379). We
// differ from it in two things: eviction goes by time of use alone, and the end
// of an output is not saved, since with drafts a sequence rarely stops at a
// border, and stopping it there would cost drafts.
//
// Prompts that begin alike often arrive together. A sequence whose prefix is
// being computed in another's prefill is passed over until it is there, and with
// recurrent layers the other saves a snapshot where the two part. That is the
// one case in which later arrivals overtake.
//
// # Sessions
//
// A request can name the conversation that it continues. When it ends, its path
// in the prefix cache is pinned for the session's next request: other pages are
// evicted first. There are bounds on how many sessions are kept so, and at most
// half of all pages are pinned; what was used longest ago is let go.
//
// # Policies
//
// A [Policy] is the order of admission within a priority, by name: a function of
// what a waiting sequence is and how long, in steps, it has waited, so that
// ageing needs no clock: "fcfs", "shortest-prefill" with ageing, and "session",
// which goes by the arrival of a session's first request. It is one file and an entry in the registry. What it does not decide
// keeps the guarantees above: who is preempted, how rows are shared, that memory
// suffices.
//
// # Invariants
//
// They stand at the type sequence, and verify checks all of them: after each
// call in builds with the tag invariants, after each plan in tests. The tests
// run random programs against a device that stores a hash of all tokens before
// a position in each place of each page, state and snapshot, so that a page that
// is shared wrongly, freed early or written late gives other tokens than those
// that the request has alone.
package sched
