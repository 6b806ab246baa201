package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"exacta.dev/exacta/draft"
	"exacta.dev/exacta/draft/quant"
	"exacta.dev/exacta/engine"
	"exacta.dev/exacta/engine/checkpoint"
	"exacta.dev/exacta/engine/model"
	"exacta.dev/exacta/engine/registry"
	"exacta.dev/exacta/kernels"
	"exacta.dev/exacta/verify"
)

// QuantizeMethods are the ways to choose the 4 bits.
var QuantizeMethods = []string{"gptq", "rtn"}

// QuantizeOptions say which head exacta quantize makes, and how it is judged.
type QuantizeOptions struct {
	Head       string // "mtp"
	Model      string
	Backend    string
	Kernels    string
	Threads    int
	Group      int
	ZeroPoints bool
	Method     string
	// Vocab is the number of tokens of the head's own LM head; 0 keeps all.
	// Fewer are the most frequent ones of the corpus.
	Vocab int
	// Corpus is a text file. It also gives the inputs to calibrate with, in
	// place of every second prompt of the model.
	Corpus string
	Out    string // directory
	K      int    // drafts per step
	Tokens int    // generated per prompt
	Limit  int    // prompts to judge by; 0 takes all
}

// QuantizeResult tells what a head of 4 bits costs and is worth. Accepted drafts are
// counted over the same prompts with the head it was made from, in turn.
type QuantizeResult struct {
	Model      string       `json:"model"`
	Head       string       `json:"head"`
	Out        string       `json:"out"`
	Method     string       `json:"method"`
	Group      int          `json:"group"`
	ZeroPoints bool         `json:"zero_points"`
	Vocab      int          `json:"vocab"` // tokens of the LM head
	Calibrated int          `json:"calibration_tokens"`
	Prompts    int          `json:"prompts"`
	K          int          `json:"k"`
	Bytes      QuantizePair `json:"bytes"` // of all that a draft reads, LM head included
	Accepted   QuantizePair `json:"accepted"`
	PerStep    QuantizePair `json:"accept_length"`
	DraftMs    QuantizePair `json:"draft_ms"` // median time to draft in a step
	// Exact says that both heads gave the same output tokens.
	Exact bool `json:"exact"`
}

// QuantizePair is a figure of the BF16 head and of that of 4 bits.
type QuantizePair struct {
	BF16  float64 `json:"bf16"`
	Int4  float64 `json:"int4"`
	Ratio float64 `json:"ratio"`
}

func pairOf(bf16, int4 float64) QuantizePair {
	p := QuantizePair{BF16: bf16, Int4: int4}
	if bf16 != 0 {
		p.Ratio = int4 / bf16
	}
	return p
}

func (o QuantizeOptions) validate() error {
	switch {
	case o.Head != "mtp":
		return fmt.Errorf("quantize %q: heads that can be quantised: mtp", o.Head)
	case !slices.Contains(QuantizeMethods, o.Method):
		return fmt.Errorf("method %q; use one of %v", o.Method, QuantizeMethods)
	case !slices.Contains(kernels.Int4Groups, o.Group):
		return fmt.Errorf("group %d; it must be one of %v", o.Group, kernels.Int4Groups)
	case o.Out == "":
		return errors.New("out: name the directory to write the head to")
	case o.K < 1 || o.K >= kernels.WindowTokens:
		return fmt.Errorf("k %d; it must be 1..%d", o.K, kernels.WindowTokens-1)
	case o.Tokens < 1 || o.Limit < 0 || o.Vocab < 0:
		return errors.New("tokens must be positive, limit and vocab must not be negative")
	case o.Vocab > 0 && o.Corpus == "":
		return errors.New("vocab: a corpus is needed to tell which tokens are frequent")
	}
	return nil
}

// quantizer is a running Quantize.
type quantizer struct {
	o     QuantizeOptions
	entry *registry.Entry
	rec   *quant.Recorder
	m     *model.Model
	res   QuantizeResult
	show  func(string)
}

// Quantize makes a head of 4 bits, writes it, and judges it against the head that it
// was made from. show is told how far it is.
func Quantize(ctx context.Context, o QuantizeOptions, show func(string)) (res *QuantizeResult, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	z := quantizer{o: o, show: show}
	if z.entry, err = registry.Open(o.Model); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, z.entry.Close()) }()
	be, err := OpenBackend(o.Backend, o.Threads, o.Kernels)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, be.Close()) }()
	z.rec = quant.NewRecorder(be)
	if z.m, err = model.Load(z.rec, z.entry.Source, model.Options{MTP: true}); err != nil {
		return nil, err
	}
	if _, ok := z.m.MTPLayer(); !ok {
		return nil, fmt.Errorf("quantize mtp: model %s has no MTP module (mtp.* tensors)", z.entry.Name)
	}
	calibrate, judge, corpus, err := z.prompts()
	if err != nil {
		return nil, err
	}
	if o.Method == "gptq" {
		if err := z.calibrate(ctx, calibrate); err != nil {
			return nil, err
		}
	}
	if err := z.write(corpus); err != nil {
		return nil, err
	}
	if err := z.judge(ctx, judge); err != nil {
		return nil, err
	}
	return &z.res, nil
}

// prompts returns what to calibrate with, what to judge by, and the corpus.
func (z *quantizer) prompts() (calibrate, judge []Prompt, corpus []int32, err error) {
	all, err := LoadPrompts(Prompts{MaxTokens: 128}, z.entry)
	if err != nil {
		return nil, nil, nil, err
	}
	if z.o.Corpus == "" {
		for i, p := range all {
			if i%2 == 0 {
				calibrate = append(calibrate, p)
			} else {
				judge = append(judge, p)
			}
		}
	} else {
		if corpus, err = z.corpus(); err != nil {
			return nil, nil, nil, err
		}
		const pieces, length = 48, 96
		for i := range pieces {
			from := i * max(1, len(corpus)/pieces)
			if part := corpus[min(from, len(corpus)):min(from+length, len(corpus))]; len(part) > 0 {
				calibrate = append(calibrate, Prompt{ID: fmt.Sprintf("corpus-%d", i), IDs: part})
			}
		}
		judge = all
	}
	if n := z.o.Limit; n > 0 {
		judge = judge[:min(n, len(judge))]
	}
	if len(judge) == 0 || len(calibrate) == 0 {
		return nil, nil, nil, errors.New("quantize: there must be two prompts at least, or a corpus")
	}
	return calibrate, judge, corpus, nil
}

func (z *quantizer) corpus() ([]int32, error) {
	if z.entry.Tokenizer == nil {
		return nil, fmt.Errorf("corpus: model %s has no tokenizer", z.entry.Name)
	}
	text, err := os.ReadFile(z.o.Corpus)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("corpus %s is not valid UTF-8", z.o.Corpus)
	}
	ids := z.entry.Tokenizer.Encode(string(text), false)
	if len(ids) == 0 {
		return nil, fmt.Errorf("corpus %s is empty", z.o.Corpus)
	}
	return ids, nil
}

// drafter makes the mtp drafter with the head at a place.
func (z *quantizer) drafter(head string) (engine.Drafter, error) {
	return (&draft.MTP{Head: head}).Provision(draft.Env{Backend: z.rec, Model: z.m, Vocab: z.entry.Vocab()})
}

// calibrate decodes prompts while the recorder watches the drafter.
func (z *quantizer) calibrate(ctx context.Context, prompts []Prompt) error {
	d, err := z.drafter("")
	if err != nil {
		return err
	}
	watched := quant.Watch(d.(engine.DeviceDrafter), z.rec)
	for i, p := range prompts {
		z.show(fmt.Sprintf("calibrate %d of %d", i+1, len(prompts)))
		out, err := z.decode(ctx, watched, p)
		if err != nil {
			return err
		}
		z.res.Calibrated += len(p.IDs) + len(out.tokens)
	}
	return z.rec.Err()
}

// decoded is what one prompt gave.
type decoded struct {
	tokens          []int32
	accepted, steps int
	draftMs         []float64
}

// decode continues a prompt greedily.
func (z *quantizer) decode(ctx context.Context, d engine.Drafter, p Prompt) (out decoded, err error) {
	rule, err := verify.New("greedy")
	if err != nil {
		return out, err
	}
	rec := engine.RecorderFunc(func(r *engine.Record) error {
		if r.Phase == engine.Decode {
			out.steps++
			out.accepted += int(r.Accepted)
			if int(r.KExecuted) == z.o.K {
				out.draftMs = append(out.draftMs, float64(r.DraftNs)/1e6)
			}
		}
		return nil
	})
	e, err := engine.New(z.m, engine.Config{
		MaxTokens: min(z.m.MaxTokens, len(p.IDs)+z.o.Tokens), MaxSequences: 1, MaxDraft: z.o.K, Vocab: z.entry.Vocab(),
	}, map[string]engine.Drafter{d.Name(): d}, rule, rec, engine.Listener{})
	if err != nil {
		return out, err
	}
	defer e.Close()
	seq, err := e.Submit(engine.Request{
		ID: p.ID, Prompt: p.IDs, MaxNew: z.o.Tokens, Drafter: d.Name(), K: z.o.K, Stop: z.entry.Source.Config().EOS, IgnoreStop: true,
	})
	if err != nil {
		return out, err
	}
	if err := e.Run(func() bool { return ctx.Err() != nil }); err != nil {
		return out, err
	}
	if ctx.Err() != nil {
		return out, ErrInterrupted
	}
	out.tokens = slices.Clone(seq.Output())
	return out, seq.Err()
}

// write quantises and writes the head.
func (z *quantizer) write(corpus []int32) error {
	c := z.m.Config
	h := &quant.Head{
		Kind: checkpoint.HeadMTP, Hidden: c.HiddenSize, Vocab: c.VocabSize, Draft: c.VocabSize, Method: z.o.Method,
		Options: quant.Options{Group: z.o.Group, ZeroPoints: z.o.ZeroPoints},
	}
	var keep []int32
	if z.o.Vocab > 0 {
		var err error
		if keep, err = quant.Frequent(corpus, z.entry.Vocab(), z.o.Vocab); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		h.SetTokens(keep)
	}
	lm := "lm_head.weight"
	if c.TieEmbeddings {
		lm = "model.embed_tokens.weight"
	}
	var whole int64
	for _, l := range z.rec.Named("mtp.", lm) {
		z.show("quantise " + l.Parts[0].Name)
		rows, cols := l.Shape()
		whole += 2 * int64(rows) * int64(cols)
		var rows4 []int32
		if l.Parts[0].Name == lm {
			rows4 = keep
		}
		if err := h.Add(l, func(name string) string { return strings.Replace(name, lm, "lm_head.weight", 1) }, rows4); err != nil {
			return fmt.Errorf("quantize: %w", err)
		}
	}
	z.res.Bytes = pairOf(float64(whole), float64(h.Bytes()))
	z.res.Vocab = h.Draft
	return h.Write(z.o.Out)
}

// judge compares both heads prompt by prompt.
func (z *quantizer) judge(ctx context.Context, prompts []Prompt) error {
	r := &z.res
	r.Model, r.Head, r.Out, r.Method, r.Group, r.ZeroPoints = z.entry.Name, z.o.Head, z.o.Out, z.o.Method, z.o.Group, z.o.ZeroPoints
	r.Prompts, r.K, r.Exact = len(prompts), z.o.K, true
	var heads [2]engine.Drafter
	var sum [2]decoded
	for i, where := range []string{"", z.o.Out} {
		var err error
		if heads[i], err = z.drafter(where); err != nil {
			return err
		}
	}
	for n, p := range prompts {
		z.show(fmt.Sprintf("judge %d of %d", n+1, len(prompts)))
		var outs [2]decoded
		for i := range heads {
			var err error
			if outs[i], err = z.decode(ctx, heads[i], p); err != nil {
				return err
			}
			sum[i].accepted += outs[i].accepted
			sum[i].steps += outs[i].steps
			sum[i].draftMs = append(sum[i].draftMs, outs[i].draftMs...)
		}
		r.Exact = r.Exact && slices.Equal(outs[0].tokens, outs[1].tokens)
	}
	mid := func(x []float64) float64 {
		if len(x) == 0 {
			return 0
		}
		slices.Sort(x)
		return x[len(x)/2]
	}
	length := func(d decoded) float64 { return 1 + float64(d.accepted)/float64(max(1, d.steps)) }
	r.Accepted = pairOf(float64(sum[0].accepted), float64(sum[1].accepted))
	r.PerStep = pairOf(length(sum[0]), length(sum[1]))
	r.DraftMs = pairOf(mid(sum[0].draftMs), mid(sum[1].draftMs))
	return nil
}
