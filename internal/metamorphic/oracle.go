package metamorphic

import (
	"math/rand/v2"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// oracle drafts what the reference run produced, with an error now and then, so
// that every accepted count is met.
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
		for i := range n {
			id := int32(o.rand.IntN(o.vocab))
			if ref := o.known(a.Seq); done+i < len(ref) {
				id = ref[done+i]
			}
			if o.rand.IntN(4) == 0 {
				id = o.corrupt(id)
			}
			a.Draft.Tokens = append(a.Draft.Tokens, id)
		}
	}
	return nil
}
