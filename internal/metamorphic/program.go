package metamorphic

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"exacta.dev/exacta/engine/sample"
)

// Request is one request of a program.
type Request struct {
	Prompt  []int32
	MaxNew  int
	Drafter string // "", "oracle" or a strategy of package draft
	K       int
	Params  sample.Params
	Rule    string // "greedy" or "coupled"
	Arrive  int    // engine step at which it is submitted
}

// Options are the engine's side of a program.
type Options struct {
	Kernels      string
	Threads      int
	FakeDevice   bool
	Chunk        int
	BatchTokens  int
	MaxSequences int
	TightPages   bool // so few pages that sequences are preempted
	PrefixCache  bool
	Pauses       bool // drafts are of any length, and often none, step by step
}

// Program is requests and options, made from a seed.
type Program struct {
	Seed     uint64
	Requests []Request
	Options  Options
}

// MaxTokens is the context of the engines that run programs.
const MaxTokens = 704

// NewProgram makes the program of a seed for a vocabulary; kernelSets are the
// sets that the machine has.
func NewProgram(seed uint64, vocab int, kernelSets []string) Program {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	p := Program{Seed: seed, Options: Options{
		Kernels:      pick(r, kernelSets),
		Threads:      1 + r.IntN(2),
		FakeDevice:   r.IntN(4) == 0,
		Chunk:        pick(r, []int{1, 7, 64, 65, 512}),
		MaxSequences: 1 + r.IntN(16),
		TightPages:   r.IntN(3) == 0,
		PrefixCache:  r.IntN(2) == 0,
	}}
	p.Options.BatchTokens = pick(r, []int{9, 40, 130, 600})
	shared := tokens(r, vocab, 64*(1+r.IntN(3))+r.IntN(3))
	for range 1 + r.IntN(min(16, 2*p.Options.MaxSequences)) {
		p.Requests = append(p.Requests, newRequest(r, vocab, shared))
	}
	if p.Options.TightPages && p.Options.MaxSequences > 2 {
		// Admission keeps a spare page for each; only long outputs of many
		// sequences use more.
		for i := range p.Requests {
			if r.IntN(2) == 0 {
				p.Requests[i].MaxNew = 80 + r.IntN(100)
			}
		}
	}
	if r.IntN(6) == 0 { // one long sequence that crosses an attention split
		p.Requests[0].Prompt = tokens(r, vocab, pick(r, []int{500, 508, 511}))
		p.Requests[0].MaxNew = 30
		if p.Options.Chunk == 1 {
			p.Options.Chunk = 65
		}
	}
	p.Options.Pauses = r.IntN(3) == 0
	return p
}

func newRequest(r *rand.Rand, vocab int, shared []int32) Request {
	q := Request{
		Prompt:  tokens(r, vocab, pick(r, []int{1, 2, 5, 31, 61, 62, 63, 64, 65, 66, 120, 127, 128, 129, 130})),
		MaxNew:  1 + r.IntN(40),
		Drafter: pick(r, []string{"", "ngram", "mtp", "mtp-tree", "mtp-tree", "eagle3", "eagle3-tree", "medusa", "medusa-line", "dflash", "layerskip", "model", "eagle", "eagle-tree", "dspark", "oracle", "oracle", "oracle", "oracle", "oracle", "oracle"}),
		K:       1 + r.IntN(8),
		Rule:    "greedy",
		Arrive:  r.IntN(12),
	}
	if r.IntN(3) == 0 {
		q.Prompt = append(append([]int32(nil), shared...), q.Prompt[:1+r.IntN(len(q.Prompt))]...)
	}
	switch r.IntN(4) {
	case 0:
		q.Rule = "coupled"
		q.Params = sample.Params{Temperature: 0.5 + r.Float32(), TopK: pick(r, []int{0, 5, 40}), TopP: pick(r, []float32{1, 0.9}), Seed: r.Uint64()}
	case 1:
		q.Params = sample.Params{RepetitionPenalty: 1 + r.Float32(), PresencePenalty: r.Float32(), FrequencyPenalty: r.Float32()}
	}
	return q
}

// Without replaces the drafters that a model lacks by ngram.
func (p *Program) Without(drafters ...string) {
	for i := range p.Requests {
		if slices.Contains(drafters, p.Requests[i].Drafter) {
			p.Requests[i].Drafter = "ngram"
		}
	}
}

// String prints the program so that a failure can be read and run again.
func (p Program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d options %+v\n", p.Seed, p.Options)
	for i, q := range p.Requests {
		fmt.Fprintf(&b, "  request %d: prompt of %d, max_new %d, drafter %q k %d rule %s params %+v arrives %d\n",
			i, len(q.Prompt), q.MaxNew, q.Drafter, q.K, q.Rule, q.Params, q.Arrive)
	}
	return b.String()
}

func tokens(r *rand.Rand, vocab, n int) []int32 {
	// Few distinct tokens, so that n-grams repeat.
	base, width := r.IntN(vocab), 2+r.IntN(vocab-2)
	if r.IntN(2) == 0 {
		width = 3
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((base + r.IntN(width)) % vocab)
	}
	return out
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }
