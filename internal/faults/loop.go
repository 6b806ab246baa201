package faults

import (
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// loopFaults are E10: the loop on a device errs where no host looks.
func loopFaults() []Fault {
	setup := trial.Setup{Drafter: "mtp", K: 3, Loop: true, Requests: 3, Concurrency: 2, MaxNew: 30}
	stops := setup
	stops.Stops = true
	over := func(o trial.LoopOver) func(*arming) trial.Wiring {
		return func(*arming) trial.Wiring { return trial.Wiring{Loop: o} }
	}
	return []Fault{
		{
			ID: "E10", Name: "loop: the second choice is accepted against", Report: "a column of the statistics off by one", Setup: setup,
			Expect: []string{tokens},
			arm: over(trial.LoopOver{Accept: func(q kernels.LoopQueue, kept, next kernels.Buf, r kernels.RuleID, b *kernels.Batch, target kernels.Buf) {
				q.Accept(kept, next, r, b, target.Columns(kernels.StatTop2, kernels.StatTop2+1))
			}}),
		},
		{
			ID: "E10", Name: "loop: rejected rows are committed", Report: "the length of a span for the number of its rows that stand", Setup: setup,
			Expect: []string{tokens},
			arm: over(trial.LoopOver{Commit: func(q kernels.LoopQueue, c kernels.Caches, b *kernels.Batch, _, path kernels.Buf) {
				q.Commit(c, b, b.Len, path)
			}}),
		},
		{
			ID: "E10", Name: "loop: drafts go on behind the end", Report: "the device has no count of what may still be emitted", Setup: setup,
			Expect: []string{counts},
			arm:    over(trial.LoopOver{Limit: func(kernels.LoopQueue, kernels.Buf, kernels.Buf, kernels.Buf) {}}),
		},
		{
			ID: "E10", Name: "loop: a stop token is passed over", Report: "the device goes on until the host notices", Setup: stops,
			Expect: []string{counts},
			arm: over(trial.LoopOver{Halt: func(q kernels.LoopQueue, slots, left, kept, next, drafts, stops kernels.Buf) {
				q.Halt(slots, left, kept, next, drafts, slots) // which hold no stop tokens
			}}),
		},
	}
}
