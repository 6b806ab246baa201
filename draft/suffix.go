package draft

import (
	"fmt"

	"exacta.dev/exacta/draft/suffixtree"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "suffix",
		Summary: "suffix decoding: the likeliest continuation of the last tokens in prompt, output and the outputs of earlier requests (Oliaro et al. 2024)",
		New: func() Strategy {
			return &Suffix{MaxDepth: 24, MaxFactor: 2, MinProb: 0.1, Branches: 1, MaxRequests: 10000, MemoryMB: 64}
		},
		Shared: true,
	})
}

// Suffix configures suffix decoding (arXiv:2411.04975, as in ArcticInference):
// one tree of substrings per sequence, over prompt and output, and one over the
// outputs of requests that have ended. A draft is the continuation that was seen
// most often, of the match with the highest expected number of accepted tokens;
// it is shorter where the match is short or the continuation uncertain. With
// branches it is a tree of the continuations that were seen most often.
type Suffix struct {
	// MaxDepth is the longest substring that is counted, match and
	// continuation together, in tokens.
	MaxDepth int `yaml:"max_depth" json:"max_depth"`
	// MaxFactor bounds a draft by the length of its match, times this.
	MaxFactor float64 `yaml:"max_factor" json:"max_factor"`
	// MinProb ends a draft before the first token whose estimated
	// probability of being accepted is lower.
	MinProb float64 `yaml:"min_prob" json:"min_prob"`
	// Branches is the most alternatives that a draft gives for one place;
	// above 1 it is a tree of the likeliest continuations, and max_factor
	// bounds its depth.
	Branches int `yaml:"branches" json:"branches"`
	// MaxRequests is the number of ended requests that are remembered, the
	// latest ones; 0 remembers none, and a sequence's drafts then depend on
	// that sequence alone.
	MaxRequests int `yaml:"max_requests" json:"max_requests"`
	// MemoryMB bounds the tree of ended requests, in MiB.
	MemoryMB int `yaml:"memory_mb" json:"memory_mb"`
}

// Validate implements Strategy.
func (c *Suffix) Validate() error {
	switch {
	case c.MaxDepth < 2 || c.MaxDepth > 256:
		return fmt.Errorf("max_depth is %d; it must be 2..256", c.MaxDepth)
	case !(c.MaxFactor > 0 && c.MaxFactor <= 64):
		return fmt.Errorf("max_factor is %v; it must be above 0 and at most 64", c.MaxFactor)
	case !(c.MinProb >= 0 && c.MinProb <= 1):
		return fmt.Errorf("min_prob is %v; it must be 0..1", c.MinProb)
	case c.Branches < 1 || c.Branches > 16:
		return fmt.Errorf("branches is %d; it must be 1..16", c.Branches)
	case c.MaxRequests < 0 || c.MaxRequests > 1<<24:
		return fmt.Errorf("max_requests is %d; it must be 0..%d", c.MaxRequests, 1<<24)
	case c.MemoryMB < 1 || c.MemoryMB > 1<<16:
		return fmt.Errorf("memory_mb is %d; it must be 1..%d", c.MemoryMB, 1<<16)
	}
	return nil
}

// Provision implements Strategy.
func (c *Suffix) Provision(Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft suffix: %w", err)
	}
	return &suffix{cfg: *c, seqs: map[int64]*suffixSeq{}, past: suffixtree.New(c.MaxDepth)}, nil
}

// suffix is the drafter.
type suffix struct {
	cfg  Suffix
	seqs map[int64]*suffixSeq
	past *suffixtree.Tree
	// ended are the outputs in past, the oldest first.
	ended [][]int32
}

var _ engine.Drafter = (*suffix)(nil)

// suffixSeq is the tree of one sequence.
type suffixSeq struct {
	tree *suffixtree.Tree
	text suffixtree.Text
	n    int // tokens in it
}

// Chains implements engine.ChainDrafter.
func (d *suffix) Chains() bool { return d.cfg.Branches == 1 }

// Name implements engine.Drafter.
func (d *suffix) Name() string { return "suffix" }

// Committed implements engine.Drafter. The sequences' own tokens are all that is
// needed, and Propose reads them.
func (d *suffix) Committed(*engine.Step) error { return nil }

// Propose implements engine.Drafter.
func (d *suffix) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		s := d.seqs[a.Seq.ID()]
		if s == nil {
			s = &suffixSeq{tree: suffixtree.New(d.cfg.MaxDepth)}
			d.seqs[a.Seq.ID()] = s
		}
		tokens := a.Seq.Tokens()
		for ; s.n < len(tokens); s.n++ {
			s.tree.Append(&s.text, tokens[s.n])
		}
		l := suffixtree.Limits{Tokens: a.K, Factor: d.cfg.MaxFactor, MinProb: d.cfg.MinProb, Branches: d.cfg.Branches}
		guess := s.tree.Continue(&s.text, l)
		if past := d.past.Lookup(tokens, l); past.Score > guess.Score {
			guess = past
		}
		a.Draft = engine.Draft{Tokens: append(a.Draft.Tokens[:0], guess.Tokens...), Parents: guess.Parents, Expect: float32(guess.Score)}
	}
	return nil
}

// Release implements engine.Drafter: what a request that came to its end has
// put out is remembered.
func (d *suffix) Release(seq *engine.Sequence) {
	delete(d.seqs, seq.ID())
	if f := seq.Finish(); f != engine.FinishStop && f != engine.FinishLength || d.cfg.MaxRequests == 0 {
		return
	}
	output := append([]int32(nil), seq.Output()...)
	var text suffixtree.Text
	for _, id := range output {
		d.past.Append(&text, id)
	}
	d.ended = append(d.ended, output)
	for len(d.ended) > d.cfg.MaxRequests || len(d.ended) > 0 && d.past.Nodes()*suffixtree.NodeBytes > d.cfg.MemoryMB<<20 {
		d.past.Remove(d.ended[0])
		d.ended = d.ended[1:]
	}
}
