package metamorphic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/kernels/fakedev"
	"exacta.dev/exacta/verify"
)

// Coverage counts the situations that a suite has met.
type Coverage struct {
	Programs, Sequences, Tokens int
	Verifications, Rejections   int
	BorderRejections            int // a verification crossed a window border and was cut before or behind it
	BorderCommits               int // a verification crossed a window border and kept it
	WindowPreemptions           int // a sequence was preempted inside a window
	SplitCrossings              int // a span crossed an attention split border
	PrefixHits                  int
	AcceptedAll                 int
	Trees, TreeCommits          int // verifications of a tree; that kept a draft of one
	TreeBorders                 int // and with it a window border
	Sampled                     int
	Pauses                      int // steps without drafts of sequences that could draft
}

// Missing names the situations that were never met, of those that the claim
// rests on.
func (c Coverage) Missing() []string {
	var m []string
	for name, n := range map[string]int{
		"verifications that cross a window border with a rejection": c.BorderRejections,
		"verifications that commit a window border":                 c.BorderCommits,
		"preemptions inside a window":                               c.WindowPreemptions,
		"spans across an attention split border":                    c.SplitCrossings,
		"prefix-cache hits":                                         c.PrefixHits,
		"drafts accepted whole":                                     c.AcceptedAll,
		"drafts of a tree accepted":                                 c.TreeCommits,
		"window borders committed by a tree":                        c.TreeBorders,
		"sampled sequences":                                         c.Sampled,
		"steps without drafts between others":                       c.Pauses,
	} {
		if n == 0 {
			m = append(m, name)
		}
	}
	slices.Sort(m)
	return m
}

// trace is what a sequence produced: a token and the hash of its logits row for
// each output position.
type trace struct {
	tokens []int32
	hashes []uint64
}

// Suite runs programs over one model.
type Suite struct {
	Source     model.Source
	KernelSets []string
	// Heads are where the learned strategies find their heads, by kind; those that
	// are left out come with the model.
	Heads    map[checkpoint.HeadKind]string
	Coverage Coverage
	loaded   map[string]*model.Model // by backend options
}

// NewSuite makes a suite over a model source.
func NewSuite(src model.Source, kernelSets []string) *Suite {
	return &Suite{Source: src, KernelSets: kernelSets, loaded: map[string]*model.Model{}}
}

// Close frees the loaded models.
func (s *Suite) Close() error {
	for _, m := range s.loaded {
		if err := m.Backend().Close(); err != nil {
			return err
		}
	}
	return nil
}

// model returns the model on the backend that the options ask for.
func (s *Suite) model(o Options) (*model.Model, error) {
	key := fmt.Sprint(o.Kernels, o.Threads, o.FakeDevice)
	if m := s.loaded[key]; m != nil {
		return m, nil
	}
	inner, err := cpu.New(cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return nil, err
	}
	var be kernels.Backend = inner
	if o.FakeDevice {
		be = fakedev.New(inner)
	}
	m, err := model.Load(be, s.Source, model.Options{MaxTokens: MaxTokens, MTP: true})
	if err != nil {
		return nil, err
	}
	s.loaded[key] = m
	return m, nil
}

// Run runs a program and compares it with its references. The error describes
// the first difference.
func (s *Suite) Run(p Program) error {
	refs := make([]trace, len(p.Requests))
	for i := range p.Requests {
		var err error
		if refs[i], err = s.reference(p.Requests[i]); err != nil {
			return fmt.Errorf("reference of request %d: %w", i, err)
		}
	}
	got, err := s.execute(p, refs)
	if err != nil {
		return err
	}
	for i := range refs {
		if err := compare(refs[i], got[i]); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	s.Coverage.Programs++
	return nil
}

func compare(want, got trace) error {
	for i := range min(len(want.tokens), len(got.tokens)) {
		if want.hashes[i] != got.hashes[i] {
			return fmt.Errorf("logits of output %d differ: hash %016x, plain %016x (token %d, plain %d)", i, got.hashes[i], want.hashes[i], got.tokens[i], want.tokens[i])
		}
		if want.tokens[i] != got.tokens[i] {
			return fmt.Errorf("output %d is token %d, plain %d", i, got.tokens[i], want.tokens[i])
		}
	}
	if len(want.tokens) != len(got.tokens) {
		return fmt.Errorf("%d tokens, plain %d", len(got.tokens), len(want.tokens))
	}
	return nil
}

// reference decodes a request alone and plainly.
func (s *Suite) reference(r Request) (trace, error) {
	m, err := s.model(Options{Kernels: s.KernelSets[0], Threads: 1})
	if err != nil {
		return trace{}, err
	}
	r.Drafter, r.K, r.Arrive = "", 0, 0
	out, err := drive(m, engine.Config{MaxSequences: 1, MaxTokens: MaxTokens}, nil, []Request{r}, nil)
	if err != nil {
		return trace{}, err
	}
	return out[0], nil
}

// execute runs the program's requests together under its options.
func (s *Suite) execute(p Program, refs []trace) ([]trace, error) {
	m, err := s.model(p.Options)
	if err != nil {
		return nil, err
	}
	o := &oracle{rand: rand.New(rand.NewPCG(p.Seed, 1)), vocab: m.Config.VocabSize, output: map[string][]int32{}}
	for i, ref := range refs {
		o.output[requestID(i)] = ref.tokens
	}
	drafters := map[string]engine.Drafter{"oracle": o}
	strategies := Strategies(s.Heads)
	// Heads of which the embedded model has none are of random weights.
	eagle := cmp.Or(s.Heads[checkpoint.HeadEagle], model.RandomHead)
	strategies["eagle"] = &draft.Eagle{Head: eagle, Width: 3, Depth: 5}
	strategies["eagle-tree"] = &draft.Eagle{Head: eagle, Tree: true, Width: 3, Depth: 5}
	strategies["model"] = &draft.Model{Model: model.RandomHead} // in half of the time that the target takes
	spark := cmp.Or(s.Heads[checkpoint.HeadDSpark], model.RandomHead)
	if model.HasDSpark(s.Source) {
		spark = "" // the model's own
	}
	strategies["dspark"] = &draft.DSpark{Head: spark, MinConfidence: 0.2}
	for _, r := range p.Requests {
		name := r.Drafter
		st := strategies[name]
		if st == nil || drafters[name] != nil {
			continue
		}
		if t, ok := st.(*draft.MTPTree); ok {
			t.Sample = p.Seed%2 == 0 // its trees are then drawn with the target's noise
		}
		if drafters[name], err = st.Provision(draft.Env{Backend: m.Backend(), Model: m, Vocab: m.Config.VocabSize}); err != nil {
			return nil, err
		}
	}
	cfg := engine.Config{
		MaxTokens: MaxTokens, MaxSequences: p.Options.MaxSequences, BatchTokens: p.Options.BatchTokens,
		Chunk: p.Options.Chunk, PrefixCache: p.Options.PrefixCache, Snapshots: 6,
	}
	if p.Options.Pauses {
		cfg.Lengths = &pauses{rand: rand.New(rand.NewPCG(p.Seed, 2)), met: &s.Coverage.Pauses}
	}
	if p.Options.TightPages {
		cfg.Pages = (MaxTokens+10)/kernels.PageTokens + 1 // exactly one longest sequence
		cfg.ExpectedOutput = -1                           // or nobody would be preempted
	}
	return drive(m, cfg, drafters, p.Requests, &s.Coverage)
}

// pauses is a policy that has sequences draft nothing in two of three steps, and any
// number of tokens in the others.
type pauses struct {
	rand *rand.Rand
	met  *int // counts the steps without drafts
}

func (p *pauses) Choose(asks []engine.LengthAsk) {
	for i := range asks {
		if p.rand.IntN(3) == 0 {
			asks[i].K = p.rand.IntN(asks[i].Most + 1)
		}
		if asks[i].K == 0 && asks[i].Most > 0 {
			*p.met++
		}
	}
}
func (*pauses) Observe(*engine.StepOutcome) {}
func (*pauses) Release(*engine.Sequence)    {}

// Strategies are those that programs draft with, by name, with heads by kind.
func Strategies(heads map[checkpoint.HeadKind]string) map[string]draft.Strategy {
	mtp, eagle3 := heads[checkpoint.HeadMTP], heads[checkpoint.HeadEagle3]
	return map[string]draft.Strategy{
		"ngram":       &draft.NGram{MinMatch: 2, MaxMatch: 4, Branches: 1},
		"mtp":         &draft.MTP{Head: mtp},
		"mtp-tree":    &draft.MTPTree{Head: mtp, Width: 3, Depth: 5},
		"eagle3":      &draft.Eagle3{Head: eagle3},
		"eagle3-tree": &draft.Eagle3Tree{Head: eagle3, Width: 3, Depth: 5},
		"medusa":      &draft.Medusa{Head: heads[checkpoint.HeadMedusa], Tree: true},
		"medusa-line": &draft.Medusa{Head: heads[checkpoint.HeadMedusa]},
		"dflash":      &draft.DFlash{Head: heads[checkpoint.HeadDFlash]},
		"layerskip":   &draft.LayerSkip{},
		"model":       &draft.Model{},
	}
}

func requestID(i int) string { return fmt.Sprintf("r%d", i) }

// drive runs requests through an engine, each submitted at its step.
func drive(m *model.Model, cfg engine.Config, drafters map[string]engine.Drafter, reqs []Request, cov *Coverage) ([]trace, error) {
	rule, err := verify.New("greedy")
	if err != nil {
		return nil, err
	}
	out := make([]trace, len(reqs))
	preempted := make([]int32, len(reqs))
	positions := make([]int, len(reqs))
	index := map[string]int{}
	recorder := engine.RecorderFunc(func(r *engine.Record) error {
		i := index[r.Request]
		out[i].tokens = append(out[i].tokens, r.EmittedIDs...)
		out[i].hashes = append(out[i].hashes, r.Hashes[:len(r.EmittedIDs)]...)
		cov.observe(r, &preempted[i], &positions[i])
		return nil
	})
	e, err := engine.New(m, cfg, drafters, rule, recorder, engine.Listener{})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	seqs := make([]*engine.Sequence, len(reqs))
	for step, left := 0, len(reqs); ; step++ {
		for i, r := range reqs {
			if seqs[i] == nil && r.Arrive <= step {
				index[requestID(i)] = i
				if seqs[i], err = submit(e, requestID(i), r); err != nil {
					return nil, err
				}
				left--
			}
		}
		more, err := e.Step()
		if err != nil {
			return nil, err
		}
		if !more && left == 0 {
			break
		}
	}
	for i, s := range seqs {
		if s.Finish() != engine.FinishLength {
			return nil, fmt.Errorf("request %d ended with %q: %w", i, s.Finish(), s.Err())
		}
		if !slices.Equal(s.Output(), out[i].tokens) {
			return nil, fmt.Errorf("request %d: the records hold %v, the sequence %v", i, out[i].tokens, s.Output())
		}
	}
	return out, nil
}

func submit(e *engine.Engine, id string, r Request) (*engine.Sequence, error) {
	rule, err := verify.New(r.Rule)
	if err != nil {
		return nil, err
	}
	return e.Submit(engine.Request{
		ID: id, Prompt: r.Prompt, MaxNew: r.MaxNew, Params: r.Params, Drafter: r.Drafter, K: r.K, Rule: rule, IgnoreStop: true,
	})
}

// observe counts what a record shows. preempted and position are the
// sequence's last known ones.
func (c *Coverage) observe(r *engine.Record, preempted *int32, position *int) {
	if c == nil {
		return
	}
	c.Tokens += len(r.EmittedIDs)
	if r.SeqStep == 0 {
		c.Sequences++
		if r.Rule == "coupled" {
			c.Sampled++
		}
	}
	if r.Cached > 0 && int(r.Position) == int(r.Cached) {
		c.PrefixHits++
	}
	if r.Preemptions > *preempted && *position%kernels.WindowTokens != 0 {
		c.WindowPreemptions++
	}
	*preempted = r.Preemptions
	end := int(r.Position) + int(r.Rows)
	if int(r.Position)/kernels.SplitTokens != (end-1)/kernels.SplitTokens {
		c.SplitCrossings++
	}
	kept := int(r.Rows)
	if r.Phase == engine.Decode {
		kept = int(r.Accepted.Length())
	}
	*position = int(r.Position) + kept
	if r.KExecuted == 0 {
		return
	}
	c.Verifications++
	rejected := !r.Leaf()
	border := int(r.Position)/kernels.WindowTokens != (end-1)/kernels.WindowTokens
	switch {
	case rejected:
		c.Rejections++
		if border {
			c.BorderRejections++
		}
	default:
		c.AcceptedAll++
	}
	if len(r.Parents) > 0 {
		c.Trees++
		if r.Accepted > 0 {
			c.TreeCommits++
		}
		if r.Accepted > 0 && *position/kernels.WindowTokens != int(r.Position)/kernels.WindowTokens {
			c.TreeBorders++
		}
	}
	if border && *position/kernels.WindowTokens != int(r.Position)/kernels.WindowTokens {
		c.BorderCommits++
	}
}
