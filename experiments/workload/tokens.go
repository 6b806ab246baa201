package workload

import (
	"errors"
	"hash/fnv"
	"math/rand/v2"
)

// errNoTokens says that a source makes prompts of ids and there is no vocabulary.
var errNoTokens = errors.New("the source makes prompts of token ids, and no model is named whose vocabulary they could be of")

// draw returns n ordinary tokens.
func (e *Env) draw(r *rand.Rand, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = e.one(r)
	}
	return out
}

// one draws an ordinary token. Where none is found soon, it takes any.
func (e *Env) one(r *rand.Rand) int32 {
	id := int32(r.IntN(e.Vocab))
	for tries := 0; e.Plain != nil && !e.Plain(id) && tries < 1000; tries++ {
		id = int32(r.IntN(e.Vocab))
	}
	return id
}

// block returns the n tokens that a block of a recorded prompt stands for: the same
// ones for the same scope, id and seed, so that what was shared is shared again. A
// shorter n gives the beginning of the block.
func (e *Env) block(scope string, id int64, n int) []int32 {
	h := fnv.New64a()
	h.Write([]byte(scope))
	return e.draw(rand.New(rand.NewPCG(e.Seed^h.Sum64(), uint64(id))), n)
}
