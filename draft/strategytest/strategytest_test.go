package strategytest

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
)

// Every registered strategy keeps the contract.
func TestRegistered(t *testing.T) {
	for _, i := range draft.List() {
		t.Run(i.Name, func(t *testing.T) { Run(t, i.New) })
	}
}

// rude is a strategy with a fault.
type rude struct {
	invalid error
	broken  error
	propose func(a *engine.Ask)
}

func (r *rude) Validate() error { return r.invalid }

func (r *rude) Provision(draft.Env) (engine.Drafter, error) { return &rudeDrafter{r}, r.broken }

type rudeDrafter struct{ *rude }

func (*rudeDrafter) Name() string                 { return "rude" }
func (*rudeDrafter) Committed(*engine.Step) error { return nil }
func (*rudeDrafter) Release(*engine.Sequence)     {}
func (d *rudeDrafter) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		d.propose(a)
	}
	return nil
}

func TestFaultsAreFound(t *testing.T) {
	calls := 0
	uniform := make([]float32, vocab)
	for i := range uniform {
		uniform[i] = 1. / vocab
	}
	with := func(id int, p float32) []float32 {
		q := append([]float32(nil), uniform...)
		q[id] = p
		return q
	}
	draftOf := func(tokens []int32, probs ...[]float32) func(a *engine.Ask) {
		return func(a *engine.Ask) { a.Draft = engine.Draft{Tokens: tokens, Probs: probs} }
	}
	for want, r := range map[string]*rude{
		"the defaults are not valid: no":                                              {invalid: errors.New("no")},
		"provision: nothing":                                                          {broken: errors.New("nothing")},
		"a draft of 2 tokens where at most 1 were asked for":                          {propose: draftOf([]int32{1, 2})},
		"draft 0 is id 61; the vocabulary is 0..60":                                   {propose: draftOf([]int32{61})},
		"draft 0 is id -1; the vocabulary is 0..60":                                   {propose: draftOf([]int32{-1})},
		"2 distributions for 1 tokens; it is one each, or none":                       {propose: draftOf([]int32{1}, uniform, uniform)},
		"the distribution of draft 0 has 60 entries; the vocabulary has 61":           {propose: draftOf([]int32{1}, uniform[1:])},
		"the distribution of draft 0 has NaN at token 3":                              {propose: draftOf([]int32{1}, with(3, float32(math.NaN())))},
		"the distribution of draft 0 has -1 at token 4":                               {propose: draftOf([]int32{1}, with(4, -1))},
		"the distribution of draft 0 gives nothing to its token 7":                    {propose: draftOf([]int32{7}, with(7, 0))},
		"Propose changed the ask":                                                     {propose: func(a *engine.Ask) { a.K = 9 }},
		"drafter rude, request r0 of 6 tokens: Propose changed the sequence's tokens": {propose: func(a *engine.Ask) { a.Seq.Tokens()[0]++ }},
		"the same requests got other drafts the second time: first r0 at 6: [1]": {propose: func(a *engine.Ask) {
			calls++
			a.Draft.Tokens = []int32{int32(calls % vocab)}
		}},
	} {
		err := Check(func() draft.Strategy { return r })
		require.ErrorContains(t, err, want)
	}
	polite := &rude{propose: draftOf([]int32{1}, uniform)}
	require.NoError(t, Check(func() draft.Strategy { return polite }))
}

// Guided runs meet every accept length in every scenario: an accepted draft is
// where most faults show.
func TestGuidedRunsMeetEveryLength(t *testing.T) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, be.Close()) }()
	m, err := model.Load(be, tiny(), model.Options{MaxTokens: maxTokens, MTP: true})
	require.NoError(t, err)
	for _, c := range cases() {
		plain, err := drive(m, c, nil)
		require.NoError(t, err)
		d, err := provision(m, &rude{propose: func(*engine.Ask) {}})
		require.NoError(t, err)
		watched, spy := watch(d, vocab, newGuide(plain))
		out, err := drive(m, c, watched)
		require.NoError(t, err)
		require.NoError(t, spy.err)
		lengths := map[int]int{}
		for _, o := range out {
			for n, times := range o.lengths {
				lengths[n] += times
			}
		}
		for n := range c.requests[0].K + 1 {
			require.Positive(t, lengths[n], "%s: no verification accepted %d of %d: %v", c.name, n, c.requests[0].K, lengths)
		}
	}
}

func TestOutcomesDiffer(t *testing.T) {
	a := []outcome{{id: "q", tokens: []int32{1, 2}, hashes: []uint64{3, 4}}}
	b := func(tokens []int32, hashes []uint64) []outcome {
		return []outcome{{id: "q", tokens: tokens, hashes: hashes}}
	}
	require.NoError(t, equal(a, b([]int32{1, 2}, []uint64{3, 4})))
	require.ErrorContains(t, equal(a, b([]int32{1, 2}, []uint64{3, 5})), "request q, output 1: token 2 with logits 0000000000000005, plain decoding has 2 with 0000000000000004")
	require.ErrorContains(t, equal(a, b([]int32{1, 9}, []uint64{3, 4})), "request q, output 1: token 9")
	require.ErrorContains(t, equal(a, b([]int32{1}, []uint64{3})), "request q has 1 tokens, plain decoding 2")
}
