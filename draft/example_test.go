package draft_test

import (
	"fmt"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/strategytest"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

// README:begin

// Follow drafts, after each token, the one that followed it last, in any request.
// It is the whole of a strategy: settings, registration, drafter.
type Follow struct {
	// Longest is the most tokens that are drafted at once.
	Longest int `yaml:"longest" json:"longest"`
}

func init() {
	draft.Register(draft.Info{
		Name: "follow", Summary: "what followed each token last, in any request",
		New: func() draft.Strategy { return &Follow{Longest: 4} },
	})
}

func (c *Follow) Validate() error {
	if c.Longest < 1 {
		return fmt.Errorf("longest is %d; it must be at least 1", c.Longest)
	}
	return nil
}

func (c *Follow) Provision(draft.Env) (engine.Drafter, error) {
	return &follow{longest: c.Longest, next: map[int32]int32{}}, nil
}

type follow struct {
	longest int
	next    map[int32]int32
}

func (f *follow) Name() string { return "follow" }

// Committed learns from what the target kept, prompts included.
func (f *follow) Committed(s *engine.Step) error {
	for _, sp := range s.Spans {
		kept := append(append([]int32(nil), sp.Tokens[:sp.Kept]...), sp.Next)
		for i := range sp.Kept {
			f.next[kept[i]] = kept[i+1]
		}
	}
	return nil
}

func (f *follow) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		tokens := a.Seq.Tokens()
		last := tokens[len(tokens)-1]
		a.Draft = engine.Draft{Tokens: a.Draft.Tokens[:0]}
		for len(a.Draft.Tokens) < min(a.K, f.longest) {
			id, known := f.next[last]
			if !known {
				break
			}
			a.Draft.Tokens = append(a.Draft.Tokens, id)
			last = id
		}
	}
	return nil
}

func (f *follow) Release(*engine.Sequence) {}

// README:end

// A strategy that is registered can be named in a configuration. Its test is one
// line.
func Example() {
	s, err := draft.New("follow")
	fmt.Println(s.Validate(), err)
	fmt.Println(strategytest.Check(func() draft.Strategy { return &Follow{Longest: 3} }))
	// Output:
	// <nil> <nil>
	// <nil>
}
