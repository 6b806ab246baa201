package faults

import (
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/internal/faults/trial"
	"exacta.dev/exacta/kernels"
)

// overDraft wires other methods of the drafter.
func overDraft(o trial.Over) trial.Wiring {
	return trial.Wiring{Drafter: func(d engine.Drafter) engine.Drafter { return trial.Wrap(d, o) }}
}

// draftFaults are B13, B23 and B27: the output is right, and the drafts are
// worse than they could be.
func draftFaults() []Fault {
	setup := trial.Setup{Drafter: "mtp", K: 4, MaxNew: 24, Requests: 3}
	return []Fault{
		{
			ID: "B13", Name: "draft one position early", Report: "ik_llama.cpp #2296 (0.8 at 1K, 0.22 at 12K)",
			Setup: setup,
			arm:   func(*arming) trial.Wiring { return overDraft(moved(-1)) },
		},
		{
			ID: "B13", Name: "draft one position late", Report: "ipex-llm #10141",
			Setup: trial.Setup{Drafter: "mtp", K: 7, MaxNew: 36},
			arm:   func(*arming) trial.Wiring { return overDraft(moved(1)) },
		},
		{
			ID: "B23", Name: "dead drafter", Report: "club-3090 #1249 (1.03 passed); sglang-jax #1586; SpecForge #310",
			Setup: setup,
			arm: func(*arming) trial.Wiring {
				return overDraft(trial.Over{Propose: func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
					if err := inner.Propose(q, asks); err != nil {
						return err
					}
					for _, a := range asks {
						for i := range a.Draft.Tokens {
							a.Draft.Tokens[i] = 0
						}
					}
					return nil
				}})
			},
		},
		{
			ID: "B23", Name: "drafter answers the last step's question", Report: "SpecForge #310; a stale buffer",
			Setup: setup,
			arm: func(*arming) trial.Wiring {
				last := map[int64][]int32{}
				return overDraft(trial.Over{Propose: func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
					if err := inner.Propose(q, asks); err != nil {
						return err
					}
					for _, a := range asks {
						now := append([]int32(nil), a.Draft.Tokens...)
						copy(a.Draft.Tokens, last[a.Seq.ID()])
						last[a.Seq.ID()] = now
					}
					return nil
				}})
			},
		},
		{
			ID: "B27", Name: "hidden state of the wrong row", Report: "vllm #45895 and its kin: the cached row is not the last committed one",
			Setup: setup,
			arm: func(*arming) trial.Wiring {
				return overDraft(trial.Over{Committed: func(inner engine.Drafter, s *engine.Step) error {
					c := *s
					c.Hidden.Row++
					return inner.Committed(&c)
				}})
			},
		},
		{
			ID: "B27", Name: "own hidden state recycled before its norm", Report: "vllm #45895 (GLM-type MTP)",
			Setup: setup,
			arm: func(*arming) trial.Wiring {
				return overDraft(trial.Over{Propose: func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
					return inner.Propose(&unnormed{Queue: q}, asks)
				}})
			},
		},
	}
}

// moved drafts by positions from where the draft belongs.
func moved(by int) trial.Over {
	return trial.Over{Propose: func(inner engine.Drafter, q kernels.Queue, asks []*engine.Ask) error {
		return inner.Propose(&elsewhere{Queue: q, by: by}, asks)
	}}
}

// elsewhere lays chains out by positions from where they belong.
type elsewhere struct {
	kernels.Queue
	by int
}

// Chain implements kernels.Queue.
func (e *elsewhere) Chain(b *kernels.Batch, c kernels.Caches, ahead int, first, rest kernels.Buf) {
	e.Queue.Chain(b, c, ahead+e.by, first, rest)
}

// unnormed leaves out the norm behind the module's block, the third of a pass.
type unnormed struct {
	kernels.Queue
	norms int
}

// Embed implements kernels.Queue.
func (u *unnormed) Embed(dst kernels.Buf, table kernels.Weight, ids kernels.Buf) {
	u.norms = 0
	u.Queue.Embed(dst, table, ids)
}

// Norm implements kernels.Queue.
func (u *unnormed) Norm(dst, x kernels.Buf, n kernels.Norm) {
	if u.norms++; u.norms == 3 {
		u.Queue.Copy(dst, x)
		return
	}
	u.Queue.Norm(dst, x, n)
}
