package draft

import (
	"fmt"

	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/kernels"
)

func init() {
	Register(Info{
		Name:    "ngram",
		Summary: "prompt lookup: the tokens that followed the last occurrence of the current n-gram in prompt and output (Saxena 2023)",
		New:     func() Strategy { return &NGram{MinMatch: 2, MaxMatch: 4, Branches: 1} },
	})
}

// NGram configures prompt lookup: the longest n-gram at the end of the sequence,
// between MinMatch and MaxMatch tokens, that occurred before, votes for what
// followed its latest occurrence. Where that reaches the end of the sequence, the
// draft goes on with its own tokens, as in LZ77: after "ab ab" it is "ab ab ab". With
// branches it is a tree of several such continuations (ngram_tree.go).
type NGram struct {
	// MinMatch is the shortest n-gram that counts as a match, in tokens.
	MinMatch int `yaml:"min_match" json:"min_match"`
	// MaxMatch is the longest n-gram that is looked up, in tokens.
	MaxMatch int `yaml:"max_match" json:"max_match"`
	// Branches is the most continuations that a draft gives; above 1 it is a
	// tree.
	Branches int `yaml:"branches" json:"branches"`
}

// maxNGram bounds MaxMatch: an n-gram is a map key of fixed size.
const maxNGram = 8

// Validate implements Strategy.
func (c *NGram) Validate() error {
	if c.MinMatch < 1 || c.MinMatch > c.MaxMatch || c.MaxMatch > maxNGram {
		return fmt.Errorf("min_match %d and max_match %d; want 1 <= min_match <= max_match <= %d", c.MinMatch, c.MaxMatch, maxNGram)
	}
	if c.Branches < 1 || c.Branches > 16 {
		return fmt.Errorf("branches is %d; it must be 1..16", c.Branches)
	}
	return nil
}

// Provision implements Strategy.
func (c *NGram) Provision(Env) (engine.Drafter, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("draft ngram: %w", err)
	}
	return &ngram{cfg: *c, seqs: map[int64]*ngramIndex{}}, nil
}

// ngram keeps an index per sequence that grows with it, so that a proposal costs
// the new tokens and a few look-ups, however long the sequence is.
type ngram struct {
	cfg  NGram
	seqs map[int64]*ngramIndex
}

var _ engine.Drafter = (*ngram)(nil)

// gram is an n-gram, padded with -1.
type gram [maxNGram]int32

// ngramIndex maps the n-grams of a sequence to the position after their latest
// occurrence that has one.
type ngramIndex struct {
	after   map[gram]int
	before  [][]int32 // see earlier; nil without branches
	indexed int       // tokens whose successor n-grams are in
}

// Name implements engine.Drafter.
func (d *ngram) Name() string { return "ngram" }

// Committed implements engine.Drafter. The sequence's own tokens are all that
// is needed, and Propose reads them.
func (d *ngram) Committed(*engine.Step) error { return nil }

// Release implements engine.Drafter.
func (d *ngram) Release(seq *engine.Sequence) { delete(d.seqs, seq.ID()) }

// Chains implements engine.ChainDrafter.
func (d *ngram) Chains() bool { return d.cfg.Branches == 1 }

// Propose implements engine.Drafter.
func (d *ngram) Propose(_ kernels.Queue, asks []*engine.Ask) error {
	for _, a := range asks {
		ix := d.seqs[a.Seq.ID()]
		if ix == nil {
			ix = &ngramIndex{after: map[gram]int{}}
			d.seqs[a.Seq.ID()] = ix
		}
		tokens := a.Seq.Tokens()
		ix.grow(tokens, d.cfg)
		a.Draft.Probs = nil
		a.Draft.Parents = nil
		if d.cfg.Branches > 1 {
			a.Draft.Tokens, a.Draft.Parents = ix.tree(tokens, d.cfg, a.K)
			continue
		}
		a.Draft.Tokens = ix.lookup(a.Draft.Tokens[:0], tokens, d.cfg, a.K)
	}
	return nil
}

// grow indexes the n-grams that end before the last token.
func (ix *ngramIndex) grow(tokens []int32, cfg NGram) {
	for end := max(ix.indexed, 1); end < len(tokens); end++ {
		for n := cfg.MinMatch; n <= cfg.MaxMatch && n <= end; n++ {
			g := gramOf(tokens[end-n : end])
			if cfg.Branches > 1 {
				ix.link(n-cfg.MinMatch, end, ix.after[g])
			}
			ix.after[g] = end
		}
	}
	ix.indexed = len(tokens)
}

// lookup appends k tokens to dst, those that followed the longest n-gram at the
// end of tokens, or none.
func (ix *ngramIndex) lookup(dst, tokens []int32, cfg NGram, k int) []int32 {
	for n := min(cfg.MaxMatch, len(tokens)); n >= cfg.MinMatch; n-- {
		at, ok := ix.after[gramOf(tokens[len(tokens)-n:])]
		if !ok {
			continue
		}
		return follow(dst, tokens, at, k)
	}
	return dst
}

// follow appends the k tokens from position at on to dst. Behind the last token of
// the sequence come those that were appended.
func follow(dst, tokens []int32, at, k int) []int32 {
	period := len(tokens) - at
	for i := range k {
		if i < period {
			dst = append(dst, tokens[at+i])
		} else {
			dst = append(dst, dst[len(dst)-period])
		}
	}
	return dst
}

func gramOf(tokens []int32) gram {
	g := gram{}
	for i := range g {
		g[i] = -1
	}
	copy(g[:], tokens)
	return g
}
