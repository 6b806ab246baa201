package experiments

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/chat"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/kernels/cpu"
	"exacta.dev/exacta/verify"
)

// InspectOptions say what is looked at, and for which run memory is counted.
type InspectOptions struct {
	Model     string
	Context   int    // tokens of a sequence; 0: 4096, or the model's limit
	Sequences int    // that run at once; 0: 1
	Draft     string // strategy whose caches are counted; empty: the one of the module in the model's files
	Threads   int    // CPU threads; 0: all cores
	Values    bool   // read every weight and report those that are not finite
}

// Inspect looks at a model. The error is of a name that stands for nothing; what is
// wrong with a model is in the result.
func Inspect(ctx context.Context, o InspectOptions) (*Inspection, error) {
	in := &Inspection{
		Model: o.Model, Format: "random", Problems: []string{}, Files: []InspectFile{}, Types: []InspectPart{}, Parts: []InspectPart{},
		Drafts: []string{}, Missing: []string{}, Unused: []string{}, LeftOut: []string{}, Unread: []string{},
	}
	s, err := registry.Examine(o.Model)
	known := err == nil
	switch {
	case known:
		in.survey(s)
	case !errors.Is(err, errors.ErrUnsupported):
		in.problem(err)
	}
	e, err := registry.Look(o.Model)
	if err != nil {
		if !known {
			return nil, err
		}
		in.problem(err)
		return in, nil
	}
	defer e.Close()
	in.entry(e)
	if err := in.layOut(e, o); err != nil {
		in.problem(err)
	}
	if o.Values {
		for _, err := range e.CheckFinite(ctx) {
			in.problem(err)
		}
	}
	in.Runs = len(in.Problems) == 0 && len(in.Missing) == 0
	return in, ctx.Err()
}

func (in *Inspection) problem(err error) {
	in.Problems = append(in.Problems, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// survey takes over what the headers say.
func (in *Inspection) survey(s *checkpoint.Survey) {
	in.Format, in.ModelType, in.Architecture = s.Format, s.ModelType, s.Architecture
	for _, f := range s.Files {
		in.Files = append(in.Files, InspectFile(f))
	}
	in.Missing = append(in.Missing, s.Missing...)
	for _, t := range s.Tensors {
		in.StoredBytes += t.Bytes
		part := partOf(t.Name)
		if !t.Used {
			part = "left out"
			in.LeftOut = append(in.LeftOut, t.Name)
		} else {
			in.Parameters += t.Len()
		}
		in.Types = addTo(in.Types, t.Type, t)
		in.Parts = addTo(in.Parts, part, t)
	}
	for _, list := range [][]InspectPart{in.Types, in.Parts} {
		slices.SortStableFunc(list, func(a, b InspectPart) int { return cmp.Compare(b.Bytes, a.Bytes) })
	}
}

func addTo(list []InspectPart, name string, t checkpoint.SurveyTensor) []InspectPart {
	i := slices.IndexFunc(list, func(p InspectPart) bool { return p.Name == name })
	if i < 0 {
		i, list = len(list), append(list, InspectPart{Name: name})
	}
	list[i].Tensors++
	list[i].Parameters += t.Len()
	list[i].Bytes += t.Bytes
	return list
}

// entry describes an opened model.
func (in *Inspection) entry(e *registry.Entry) {
	c := e.Source.Config()
	in.ModelType, in.Hash, in.Unread = c.ModelType, e.Hash, append(in.Unread, c.Unread...)
	if c.Architecture != "" {
		in.Architecture = c.Architecture
	}
	in.Config = &InspectConfig{
		Layers: c.NumLayers, HiddenSize: c.HiddenSize, IntermediateSize: c.IntermediateSize, Heads: c.NumHeads, KVHeads: c.NumKVHeads,
		Experts: c.MoE.Experts, ExpertsPerToken: c.MoE.PerToken, ExpertSize: c.MoE.Size,
		HeadDim: c.HeadDim, Vocab: c.VocabSize, Context: c.MaxPositions, Tied: c.TieEmbeddings,
	}
	for _, kind := range c.LayerTypes {
		if kind == checkpoint.LinearAttention {
			in.Config.LinearAttention++
		} else {
			in.Config.FullAttention++
		}
	}
	if model.HasMTP(e.Source) {
		in.Drafts = append(in.Drafts, "mtp")
	}
	if model.HasDSpark(e.Source) {
		in.Drafts = append(in.Drafts, "dspark")
	}
	for _, kind := range []checkpoint.HeadKind{checkpoint.HeadEagle, checkpoint.HeadEagle3, checkpoint.HeadMedusa, checkpoint.HeadDFlash, checkpoint.HeadDSpark} {
		if e.HasHead(kind) {
			in.Drafts = append(in.Drafts, string(kind))
		}
	}
	if e.Tokenizer == nil {
		return
	}
	t := &InspectTokenizer{Tokens: e.Tokenizer.Count(), Before: []string{}, EOS: []string{}}
	for _, a := range e.Tokenizer.Added() {
		if a.Special {
			t.Special++
		}
	}
	before, _ := e.Tokenizer.Template()
	for _, id := range before {
		t.Before = append(t.Before, e.Tokenizer.Spelling(id))
	}
	for _, id := range c.EOS {
		t.EOS = append(t.EOS, e.Tokenizer.Spelling(id))
	}
	_, err := e.Chat()
	t.ChatTemplate = !errors.Is(err, chat.ErrNone)
	if err != nil && t.ChatTemplate {
		in.problem(err)
	}
	in.Tokenizer = t
}

// inventory is a Source that remembers what was asked for and goes on where
// something is missing or wrong.
type inventory struct {
	model.Source
	in    *Inspection
	asked map[string]bool
}

// Matrix implements model.Source.
func (s *inventory) Matrix(name string, rows, cols int) (kernels.Source, error) {
	s.asked[name] = true
	src, err := s.Source.Matrix(name, rows, cols)
	switch {
	case err == nil:
		return src, nil
	case !s.Has(name):
		s.in.Missing = append(s.in.Missing, name)
	default:
		s.in.problem(err)
	}
	return kernels.Source{Name: name, Rows: rows, Cols: cols, DType: kernels.DTypeBF16, Data: strings.NewReader("")}, nil
}

// Ints implements model.Source.
func (s *inventory) Ints(name string, n int) ([]int64, error) {
	s.asked[name] = true
	ids, err := s.Source.Ints(name, n)
	switch {
	case err == nil || errors.Is(err, errors.ErrUnsupported):
		return ids, err
	case !s.Has(name):
		s.in.Missing = append(s.in.Missing, name)
	default:
		s.in.problem(err)
	}
	return make([]int64, n), nil
}

// Done implements model.Source.
func (s *inventory) Done(string) error { return nil }

// layOut makes the engine of a run on a backend that only counts.
func (in *Inspection) layOut(e *registry.Entry, o InspectOptions) (err error) {
	be, err := cpu.New(cpu.Options{Threads: o.Threads, Plan: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	c := e.Source.Config()
	mem := &InspectMemory{Context: min(cmp.Or(o.Context, 4096), c.MaxPositions), Sequences: cmp.Or(o.Sequences, 1), Draft: o.Draft}
	if mem.Draft == "" {
		mem.Draft = "none"
		switch {
		case model.HasMTP(e.Source):
			mem.Draft = "mtp"
		case model.HasDSpark(e.Source):
			mem.Draft = "dspark"
		}
	}
	src := &inventory{Source: e.Source, in: in, asked: map[string]bool{}}
	m, err := model.Load(be, src, model.Options{MaxTokens: mem.Context, MTP: true})
	if err != nil {
		return err
	}
	for _, name := range e.Tensors() {
		if !src.asked[name] {
			in.Unused = append(in.Unused, name)
		}
	}
	drafters := map[string]engine.Drafter{}
	if mem.Draft != "none" {
		st, err := draft.New(mem.Draft)
		if err != nil {
			return err
		}
		if drafters[mem.Draft], err = st.Provision(draft.Env{Backend: be, Model: m, Vocab: e.Vocab()}); err != nil {
			return err
		}
	}
	rule, err := verify.New("greedy")
	if err != nil {
		return err
	}
	eng, err := engine.New(m, engine.Config{MaxTokens: mem.Context, MaxSequences: mem.Sequences, Vocab: e.Vocab()}, drafters, rule, nil, engine.Listener{})
	if err != nil {
		return err
	}
	held := be.Memory()
	mem.Weights, mem.KV, mem.State = held[kernels.Weights], held[kernels.KV], held[kernels.State]
	mem.Activations, mem.Tables, mem.Total = held[kernels.Activations], held[kernels.Tables], held.Total()
	mem.LeftInFiles = m.LeftInFiles()
	in.Memory = mem
	return eng.Close()
}
