package trial

import (
	"fmt"
	"math/rand/v2"

	"exacta.dev/exacta/acceptance/audit"
)

// Requests makes the requests of a setup for a seed: what is asked, nothing
// received. The stop tokens that a setup wants are left to the caller, who knows
// what plain decoding says.
func (m *Machine) Requests(s Setup, seed uint64) []*audit.Request {
	s = s.filled()
	r := rand.New(rand.NewPCG(seed, 0x66617573))
	order := r.Perm(len(m.pool))
	var out []*audit.Request
	for i := range s.Requests {
		q := &audit.Request{
			ID: fmt.Sprintf("trial.r0/q%d", i), MaxNew: s.MaxNew, Params: s.Params, Drafter: s.name(), K: s.K, Rule: s.Rule,
			Strategy: s.Drafter, Full: s.Length.String() == "", Simulation: s.Simulation, IgnoreStop: !s.Stops,
		}
		if s.Drafter == "" {
			q.Drafter, q.Strategy = "none", "none"
		}
		q.Prompt = m.prompt(s, order[i%len(order)], i)
		if s.Repeat && i == s.Requests-1 {
			q.Prompt = out[0].Prompt
		}
		if !s.Params.Greedy() || s.Simulation != "" {
			q.Params.Seed = seed*1000 + uint64(i)
		}
		out = append(out, q)
	}
	return out
}

// prompt cuts prompt i of a run from entry n of the pool, behind what all share.
func (m *Machine) prompt(s Setup, n, i int) []int32 {
	var out []int32
	if s.Shared > 0 {
		for j := 0; len(out) < s.Shared; j++ {
			out = append(out, m.pool[j]...)
		}
		out = out[:s.Shared:s.Shared]
	}
	ids := m.pool[n]
	return append(out, ids[:min(len(ids), s.PromptLen+i*s.PromptStep)]...)
}
