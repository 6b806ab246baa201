package metamorphic

import (
	"math/rand/v2"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// oracle drafts what the reference run produced, with an error now and then, so
// that every accepted count is met. Half of its drafts are trees, in which what was
// produced may stand on any branch.
type oracle struct {
	rand   *rand.Rand
	vocab  int
	output map[string][]int32 // by request id
}

var _ engine.Drafter = (*oracle)(nil)

func (o *oracle) Name() string                 { return "oracle" }
func (o *oracle) Committed(*engine.Step) error { return nil }
func (o *oracle) Release(seq *engine.Sequence) {}
func (o *oracle) corrupt(id int32) int32 {
	return (id + 1 + int32(o.rand.IntN(o.vocab-1))) % int32(o.vocab)
}
func (o *oracle) known(s *engine.Sequence) []int32 { return o.output[s.Request().ID] }

func (o *oracle) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		a.Draft.Tokens = nil
		n := a.K
		if o.rand.IntN(5) == 0 {
			n = o.rand.IntN(a.K + 1)
		}
		done := len(a.Seq.Output())
		parents := o.parents(n)
		depth := make([]int, n)
		for i := range n {
			if p := parents[i]; p >= 0 {
				depth[i] = depth[p] + 1
			}
			id := int32(o.rand.IntN(o.vocab))
			if ref := o.known(a.Seq); done+depth[i] < len(ref) {
				id = ref[done+depth[i]]
			}
			if o.rand.IntN(4) == 0 || a.Draft.Child(int(parents[i])+1, id) >= 0 {
				id = o.corrupt(id)
			}
			a.Draft.Tokens, a.Draft.Parents = append(a.Draft.Tokens, id), append(a.Draft.Parents, parents[i])
		}
	}
	return nil
}

// parents draws a tree of n drafts; half of the time it is a chain.
func (o *oracle) parents(n int) []int32 {
	p := make([]int32, n)
	near := 1
	if o.rand.IntN(2) == 0 {
		near = 1 + o.rand.IntN(4)
	}
	for i := range p {
		p[i] = int32(max(-1, i-1-o.rand.IntN(near)))
	}
	return p
}
